"""A call that one of the known leaders answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from smq_core.errors import NotLeader, Unavailable

T = TypeVar("T")


def first_answer(leaders: Sequence[str], call: Callable[[str], T]) -> T:
    """Tries each leader once, and the one that another names. Raises Unavailable, and what else ``call`` raises."""
    waiting = list(leaders)
    tried: set[str] = set()
    failure = "this broker was given no leader (--leader)"
    while waiting:
        leader = waiting.pop(0)
        if leader in tried:
            continue
        tried.add(leader)
        try:
            return call(leader)
        except NotLeader as error:
            failure = error.message
            waiting[:0] = [error.leader] if error.leader else []
        except Unavailable as error:
            failure = error.message
    raise Unavailable(failure)
