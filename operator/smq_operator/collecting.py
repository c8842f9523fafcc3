"""How patiently the leader removes what is not wanted any more, and the flags for it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from smq_core.model import SECOND
from smq_operator.flags import duration_of


@dataclass(frozen=True, slots=True)
class Patience:
    """All in microseconds.

    ``every``: the pace of retention, and of looking for deleted topics whose time has come. ``removed_files``: so long
    files stay after their segment left the index, for readers that are in the middle of them. ``deleted_topics``: so
    long a deleted topic's data stays. ``strays``: so old a file must be before it is taken for one that nobody will
    ever refer to; so for uploads. ``look_every``: the pace of looking for those, and for topics that were deleted while
    nobody led.
    """

    every: int = 10 * SECOND
    removed_files: int = 60 * SECOND
    deleted_topics: int = 600 * SECOND
    strays: int = 3600 * SECOND
    look_every: int = 600 * SECOND


_FLAGS = (
    ("--collect-every", "every", "10s", "how often retention is looked at"),
    ("--removed-files-stay", "removed_files", "1m", "how long files stay after retention removed their segment"),
    ("--deleted-topics-stay", "deleted_topics", "10m", "how long the data of a deleted topic stays (policy Delete)"),
    ("--strays-stay", "strays", "1h", "how old a file must be before it is collected because nothing refers to it"),
    ("--look-for-strays-every", "look_every", "10m", "how often such files are looked for"),
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags that :func:`patience_of` reads."""
    for flag, _, default, what in _FLAGS:
        parser.add_argument(flag, default=default, metavar="DURATION", help=f"{what} ({default})")


def patience_of(given: argparse.Namespace) -> Patience:
    """Raises InvalidRequest."""
    return Patience(**{name: duration_of(flag, given) for flag, name, _, _ in _FLAGS})
