"""One consumer group that this leader serves: core's Group, with what the leader keeps about it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

from smq_core.model.entities import Micros, Topic
from smq_core.reading.consumer_group import Group
from smq_operator.groups.idle_groups import GroupSnapshot
from smq_operator.reconcile.topics.managed_topic import ManagedTopic

log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class LoadedGroup:
    """See the module's docstring."""

    managed: ManagedTopic
    topic: Topic
    group: Group
    etag: str
    written: set[str] = field(default_factory=set)
    """Writer ids of PUTs with unknown outcome. If the file has one of them, this leader wrote it."""
    waiters: list[asyncio.Future[None]] = field(default_factory=list)
    """Commits that wait for the next PUT, or repeat what the PUT in flight contains."""
    waiters_in_flight: list[asyncio.Future[None]] = field(default_factory=list)
    """Commits that the PUT in flight contains."""
    writer: asyncio.Task[None] | None = None
    dag_version: object = None
    used_at: int = 0
    committed_at: int = 0
    written_at: int = 0
    had_members: bool = False
    touch_due: bool = False
    """Whether the file is written without new positions, because the group is active or knows a further loss."""
    known_losses: dict[str, int] = field(default_factory=dict)
    """Losses that were reported to members' programs: the offset up to which, by segment."""

    def learn(self, losses: Mapping[str, int]) -> bool:
        """Adds losses that were reported to a member's program. False if the group knew them."""
        new = {s: upto for s, upto in losses.items() if upto > self.known_losses.get(s, -1)}
        self.known_losses.update(new)
        return bool(new)

    def refresh(self, now: Micros) -> None:
        """Expires members, and follows the topic's DAG."""
        gone = self.group.expire(now)
        if gone:
            log.info("group.expired", topic=self.topic.name, group=self.group.name, members=gone)
        reconciler = self.managed.reconciler
        if reconciler is None or reconciler.layout is None:
            return
        known = (reconciler.etag, self.managed.index.changes, reconciler.sealed_count())
        if known != self.dag_version:
            self.group.update(self.managed.nodes(), now, self.managed.index.removed_intervals)
            self.dag_version = known

    def snapshot(self) -> GroupSnapshot:
        """The group as it is now, with the positions of its file."""
        return GroupSnapshot(
            name=self.group.name,
            generation=self.group.generation,
            positions=dict(self.group.reader.committed()),
            members=tuple(sorted(self.group.members)),
            owners=self.group.assignment,
            committed_at=self.committed_at,
            last_active_at=self.written_at if not self.group.members else 0,
            awaited_commits=self.group.awaited_commits,
        )

    def answer_waiting(self, error: Exception | None) -> None:
        """Ends the commits that wait for the next PUT, without an error if the last PUT has what they commit."""
        waiters, self.waiters = self.waiters, []
        _resolve(waiters, error)

    def answer_in_flight(self, error: Exception | None) -> None:
        """Ends the commits that the PUT in flight contains."""
        _resolve(self.waiters_in_flight, error)


def _resolve(waiters: list[asyncio.Future[None]], error: Exception | None) -> None:
    for waiter in waiters:
        if waiter.done():
            continue  # the request was cancelled
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)
