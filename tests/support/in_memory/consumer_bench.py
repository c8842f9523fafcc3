"""A consumer over fetchers that the test plays, with a topic and a leader in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import smq.consumer
from smq.consumer import Consumer
from smq.consuming import consumer_monitor, saved_positions
from smq.consuming.consumer_options import ConsumerOptions
from smq.consuming.fetching import open_fetchers
from smq.consuming.fetching.fetch_plan import FetchPlan
from smq.consuming.fetching.prefetch_buffer import FetchedLoss, FetchedRows, FetchFailed, PrefetchBuffer, SegmentEnd
from smq.consuming.groups import group_membership
from smq.consuming.segment_choice import ALL_SEGMENTS, SegmentChoice
from smq_core.errors import (
    InvalidRequest,
    StoreUnavailable,
)
from smq_core.model.entities import Segment
from support.in_memory.topic import GroupInMemory, TopicInMemory, rows_of
from support.waiting import eventually


class FakeFetcher:
    """Puts what the test gives it into the consumer's buffer, until it is stopped."""

    def __init__(self, plan: FetchPlan, buffer: PrefetchBuffer[Any]) -> None:
        self.segment = plan.segment
        self.plan = plan
        self.alive = True
        self.watermark = 0
        self.watermark_known = False
        self.dropped_upto = 0
        self.filer_error: StoreUnavailable | None = None
        self._buffer = buffer
        buffer.open(self)

    def rows(self, first: int, count: int) -> bool:
        """False: the consumer no longer reads this."""
        return self._buffer.put(self, FetchedRows(rows_of(count), first, count))

    def put(self, item: SegmentEnd | FetchedLoss | FetchFailed) -> bool:
        return self._buffer.put(self, item)

    def stop(self) -> None:
        self.alive = False
        self._buffer.drop(self)

    def may_end(self) -> bool:
        return False

    def check_liveness(self, now: float, late_by: float = 0.0) -> None: ...

    def join(self, timeout: float) -> None: ...


class FakeSearch:
    """Finds the positions that the test gives the bench; refuses offsets of 100 and more."""

    def __init__(self, bench: Bench, choice: SegmentChoice) -> None:
        self._bench, self._choice = bench, choice

    def __enter__(self) -> FakeSearch:
        return self

    def __exit__(self, *_: object) -> None: ...

    def check(self, positions: Mapping[str, int]) -> None:
        if any(offset >= 100 for offset in positions.values()):
            raise InvalidRequest("0 to 99 are possible")

    check_saved = check

    def resolve(self, to: object) -> dict[str, int]:
        self._bench.searches += 1
        return {name: offset for name, offset in self._bench.found.items() if self._choice.has(name)}

    def offset_at(self, segment: str, at: int) -> int:
        return self._bench.found[segment]


class Bench:
    found: Mapping[str, int] = {}
    """Where a search for a time ends."""
    searches = 0
    watermarks: Mapping[str, int] = {}
    """What primaries report."""

    def __init__(self) -> None:
        self.topic = TopicInMemory()
        self.first = self.topic.first
        self.leader = GroupInMemory({self.first.name: 0})
        self.fetchers: list[FakeFetcher] = []
        self.consumers: list[Consumer] = []
        self.applied = 0
        """How many assignments were applied."""

    def make_fetcher(self, *, buffer: PrefetchBuffer[Any], fetch_plan: FetchPlan, **_: object) -> FakeFetcher:
        self.fetchers.append(FakeFetcher(fetch_plan, buffer))
        return self.fetchers[-1]

    def search(self, view: object, choice: SegmentChoice = ALL_SEGMENTS) -> FakeSearch:
        return FakeSearch(self, choice)

    def open(self, group: str | None = None, **options: Any) -> Consumer:
        view: Any = self.topic
        leader: Any = self.leader
        made = Consumer(
            view=view,
            groups=leader,
            options=ConsumerOptions(group=group, **({"prefetch_bytes": 1 << 20, "max_bytes": 1000} | options)),
        )
        self.consumers.append(made)
        if group is not None:
            # It has acknowledged its first assignment, and does nothing by itself from now on.
            eventually(lambda: self.leader.acknowledged() == 1 and self.applied >= 2)
            if not self.leader.failures.get("GetPositions"):
                eventually(lambda: made._losses.has_group_losses)
        return made

    def assign(self, consumer: Consumer, positions: dict[str, int]) -> None:
        """A new assignment, which the consumer has applied when this returns."""
        self.leader.assign(positions)
        self.heartbeat(consumer)

    def heartbeat(self, consumer: Consumer) -> None:
        assert consumer._membership is not None
        consumer._membership._heartbeat()

    def heartbeat_at_once(self, consumer: Consumer) -> None:
        """From now on a heartbeat that the member wants is sent before anything else happens."""
        assert consumer._membership is not None
        consumer._membership.heartbeat_now = lambda: self.heartbeat(consumer)  # type: ignore[method-assign]

    def order(self) -> list[str]:
        """The commits, and the heartbeats that gave up the first generation, in their order."""
        return [
            method
            for method, request in self.leader.calls
            if method == "CommitPositions" or (method == "JoinGroup" and request.generation == 2)
        ]

    def plans(self) -> list[tuple[str, int]]:
        """What was ever read: segments, and from which positions."""
        return [(f.segment, f.plan.position) for f in self.fetchers]

    def child(self, number: int, start: int, stop: int, *predecessors: Segment) -> Segment:
        return self.topic.segment(number, start, stop, tuple(p.name for p in predecessors))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench()
    apply = Consumer._on_assignment

    def counted(consumer: Consumer, positions: dict[str, int], epoch: str) -> bool:
        working = apply(consumer, positions, epoch)
        made.applied += 1
        return working

    monkeypatch.setattr(Consumer, "_on_assignment", counted)
    monkeypatch.setattr(open_fetchers, "Fetcher", made.make_fetcher)
    monkeypatch.setattr(smq.consumer, "PositionSearch", made.search)
    monkeypatch.setattr(saved_positions, "_watermarks", lambda *_: made.watermarks)
    monkeypatch.setattr(consumer_monitor, "MONITOR_INTERVAL_SECONDS", 0.002)
    monkeypatch.setattr(consumer_monitor, "RETRY_AFTER_SECONDS", 0.002)
    monkeypatch.setattr(group_membership, "RETRY_AFTER_SECONDS", 0.001)
    yield made
    for consumer in made.consumers:
        consumer.close()


def offsets(consumer: Consumer) -> tuple[int, int] | None:
    """The offsets of the batch that is there, or None."""
    batch = consumer.poll(0)
    return None if batch is None else (batch.first_offset, batch.next_offset)


def refreshed(consumer: Consumer, *segments: Segment) -> None:
    """Waits until the consumer knows these segments, and has started to read what may be read."""
    eventually(lambda: all(s.name in consumer._reads.progress.nodes for s in segments) and not consumer._history.due)
    consumer._open_readable()
