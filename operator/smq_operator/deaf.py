"""Pairs of brokers that cannot hear each other, though the leader hears both: their common segments are moved apart."""

from __future__ import annotations

import structlog

from smq_core.decide import Request
from smq_core.model import Phase
from smq_operator.loop import LeaderLoop

log = structlog.get_logger()

PATIENCE = 3_000_000
STILL = 1_500_000
"""A complaint that was not repeated for so long is over."""
AGAIN_AFTER = 30_000_000


class Deaf:
    """Fed with the ``silent`` list of every report."""

    def __init__(self, loop: LeaderLoop) -> None:
        self._loop = loop
        self._since: dict[tuple[str, str], tuple[int, int]] = {}
        self._moved_at: dict[tuple[str, str], int] = {}

    def reported(self, primary: str, silent: list[str], now: int) -> None:
        """``primary`` could not hear these incarnations."""
        for pair in [p for p in self._since if p[0] == primary and p[1] not in silent]:
            del self._since[pair]
        for follower in silent:
            pair = (primary, follower)
            first, last = self._since.get(pair, (now, now))
            first = first if now - last <= STILL else now
            self._since[pair] = (first, now)
            if now - first >= PATIENCE and now - self._moved_at.get(pair, -AGAIN_AFTER) >= AGAIN_AFTER:
                self._moved_at[pair] = now
                self._move(primary, follower)

    def _move(self, primary: str, follower: str) -> None:
        for run in self._loop.topics.values():
            for segment in run.layout.segments if run.layout is not None else ():
                common = segment.primary.incarnation == primary and any(
                    replica.incarnation == follower for replica in segment.replicas[1:]
                )
                if common and segment.phase is Phase.OPEN and not segment.successors and run.leader is not None:
                    log.warning("segment.cut.apart", topic=run.name, segment=segment.name)
                    try:
                        run.leader.ask(Request("move", (segment.name,)))
                    except ValueError as error:
                        log.info("segment.cut.apart.later", segment=segment.name, message=str(error))
        self._loop.kick()
