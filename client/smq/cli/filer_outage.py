"""What commands say beside their own output while the filer takes no writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smq import ProblemInfo

# Where the leader's problems name an outage of the filer.
FILER = "filer"


def filer_notice(problems: Sequence[ProblemInfo]) -> str:
    """That the filer takes no writes, and since when; empty if it does. `smq topic list` has what processes met."""
    message = next((problem.message for problem in problems if problem.where == FILER), "")
    return f"{message.partition(' (')[0]}: `smq topic list` says why, and what waits" if message else ""
