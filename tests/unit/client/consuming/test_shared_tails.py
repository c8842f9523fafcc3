"""Readers of one client share the stream of a tail: who publishes, who subscribes, and that each gets every message."""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from smq.consuming.fetching import fetcher as fetcher_module
from smq.consuming.fetching import tail_fetcher
from smq.consuming.fetching.fetch_plan import FetchPlan
from smq.consuming.fetching.fetcher import Fetcher
from smq.consuming.fetching.prefetch_buffer import FetchedRows, PrefetchBuffer, SegmentEnd
from smq.consuming.fetching.shared_tails import PublishedTail, SharedTails
from smq.reading.tail_stream import TailFrame
from smq_core.errors import SmqError, Unreachable
from smq_core.model.entities import Replica
from smq_proto.v1 import data_pb2 as pb
from support.in_memory.topic import TopicInMemory, rows_of
from support.waiting import eventually

KEY = ("uid", "segment")


def frame(first: int, rows: int, watermark: int | None = None, **values: Any) -> TailFrame:
    table = rows_of(rows) if rows else None
    values["nbytes"] = table.nbytes if table else 0
    return TailFrame(table=table, first=first, watermark=first + rows if watermark is None else watermark, **values)


# ---- publishing


def published(tails: SharedTails, *frames: TailFrame) -> PublishedTail:
    """A tail from offset 0 on of which these frames are over."""
    made = tails.publish(KEY, 0)
    assert made is not None
    for one in frames:
        made.put(one)
    return made


def collect(tails: SharedTails, position: int = 0) -> list[TailFrame]:
    """What a new subscriber gets."""
    found: list[TailFrame] = []

    def receive(frame: TailFrame) -> bool:
        found.append(frame)
        return True

    assert tails.subscribe(KEY, position, receive) is not None
    return found


def more(frame: TailFrame) -> bool:
    return True


def test_nobody_can_subscribe_to_what_is_not_published() -> None:
    tails = SharedTails()
    assert tails.subscribe(KEY, 0, more) is None
    published(tails, frame(0, 0))
    assert tails.publish(KEY, 0) is None, "one stream is enough"
    assert tails.subscribe(("other", "segment"), 0, more) is None


def test_a_subscriber_gets_what_follows_its_position() -> None:
    tails = SharedTails()
    tail = published(tails)
    assert tails.subscribe(KEY, 5, more) is None, "nobody knows yet how far behind it is"
    tail.put(frame(0, 3, watermark=5))
    assert tails.subscribe(KEY, 5, more) is None, "it is behind"
    tail.put(frame(3, 2))
    assert tails.subscribe(KEY, 4, more) is None, "this reader would miss a message"
    there, ahead = collect(tails, 5), collect(tails, 6)
    assert tail.readers == 3
    frames = [frame(5, 2), frame(7, 0), frame(7, 1)]
    for one in frames:
        tail.put(one)
    assert there == ahead == frames


def test_nothing_is_received_after_the_end() -> None:
    tails = SharedTails()
    tail = published(tails, frame(0, 0))
    found = collect(tails)
    tail.put(frame(0, 1))
    tail.end()
    tail.put(frame(1, 1))
    assert len(found) == 1
    assert tails.subscribe(KEY, 1, more) is None and tails.publish(KEY, 1) is not None


def test_a_subscriber_that_takes_no_more_delays_nobody() -> None:
    tails = SharedTails()
    tail = published(tails, frame(0, 0))
    refused = tails.subscribe(KEY, 0, lambda frame: False)
    assert refused is not None
    found = collect(tails)
    tail.put(frame(0, 1))
    refused.wait()
    assert len(found) == 1 and tail.readers == 2


def test_a_subscriber_that_fails_ends_nobody_elses_reading(caplog: pytest.LogCaptureFixture) -> None:
    tails = SharedTails()
    tail = published(tails, frame(0, 0))

    def fail(frame: TailFrame) -> bool:
        raise ValueError("wrong")

    failing = tails.subscribe(KEY, 0, fail)
    assert failing is not None
    found = collect(tails)
    tail.put(frame(0, 1))
    failing.wait()
    assert len(found) == 1 and tail.readers == 2 and "could not be received" in caplog.text


def test_a_closed_subscription_counts_no_more() -> None:
    tails = SharedTails()
    tail = published(tails, frame(0, 0))
    subscription = tails.subscribe(KEY, 0, more)
    assert subscription is not None
    subscription.close()
    subscription.wait()
    tail.put(frame(0, 1))
    assert tail.readers == 1


# ---- readers


class Streams:
    """The streams that readers open; the test sends their frames."""

    def __init__(self) -> None:
        self.opened: list[ScriptedStream] = []

    def open(self, segment: str, uid: str, replica: Replica, channels: object, readers: int) -> ScriptedStream:
        return ScriptedStream(self, readers)

    def next(self, count: int) -> ScriptedStream:
        """Waits for the ``count``-th one."""
        eventually(lambda: len(self.opened) >= count, f"stream {count}")
        return self.opened[count - 1]


class ScriptedStream:
    def __init__(self, streams: Streams, readers: int) -> None:
        self._streams = streams
        self._frames: queue.SimpleQueue[TailFrame | SmqError | None] = queue.SimpleQueue()
        self.readers = readers
        self.start = -1
        self.ended = threading.Event()

    def send(self, *frames: TailFrame | SmqError) -> None:
        for one in frames:
            self._frames.put(one)

    def frames(self, start: int) -> Iterator[TailFrame]:
        self.start = start
        self._streams.opened.append(self)
        try:
            while (one := self._frames.get()) is not None:
                if isinstance(one, SmqError):
                    raise one
                yield one
        finally:
            self.ended.set()

    def is_unresponsive(self, now: float) -> bool:
        return False

    def touch(self) -> None: ...

    def abort(self) -> None:
        self._frames.put(None)


class Readers:
    def __init__(self) -> None:
        self.topic = TopicInMemory()
        self.streams = Streams()
        self.tails = SharedTails()
        self.fetchers: list[Fetcher] = []
        self.buffers: list[PrefetchBuffer[Fetcher]] = []

    def add(self, position: int = 0, budget: int = 1 << 20) -> Fetcher:
        self.buffers.append(PrefetchBuffer(budget))
        plan = FetchPlan(self.topic.first.name, position)
        view: Any = self.topic
        self.fetchers.append(
            Fetcher(
                view=view,
                buffer=self.buffers[-1],
                fetch_plan=plan,
                max_bytes=1 << 20,
                ordinal=0,
                shared_tails=self.tails,
            )
        )
        return self.fetchers[-1]

    def add_subscriber(self, budget: int = 1 << 20) -> None:
        """A reader with this budget that publishes, and another one that subscribes."""
        self.add(budget=budget)
        self.streams.next(1).send(frame(0, 0))
        eventually(lambda: self.fetchers[0].watermark_known)
        self.add()
        self.streams.next(2).send(frame(0, 0))
        assert self.streams.opened[1].ended.wait(60), "the second one subscribes"

    def add_two(self) -> ScriptedStream:
        """Two readers at offset 0. Returns the stream that they share, which was opened for both."""
        self.add_subscriber()
        self.streams.opened[0].send(frame(0, 0))
        shared = self.streams.next(3)
        assert (shared.start, shared.readers) == (0, 2)
        return shared

    def values(self, reader: int, count: int) -> list[bytes]:
        """The values of its next messages."""
        found: list[bytes] = []
        buffer = self.buffers[reader]

        def has_all() -> bool:
            while (taken := buffer.take(1 << 20)) is not None:
                if isinstance(taken[1], FetchedRows):
                    found.extend(taken[1].table["value"].to_pylist())
            return len(found) >= count

        with buffer.changed:
            assert buffer.changed.wait_for(has_all, 60) and len(found) == count
        return found


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Readers]:
    made = Readers()
    monkeypatch.setattr(tail_fetcher, "TailStream", made.streams.open)
    monkeypatch.setattr(fetcher_module, "MIN_BACKOFF_SECONDS", 0.001)
    monkeypatch.setattr(fetcher_module, "MAX_BACKOFF_SECONDS", 0.001)
    yield made
    for fetcher in made.fetchers:
        fetcher.stop()
    for fetcher in made.fetchers:
        fetcher.join(60)
        assert not fetcher.alive


def test_two_readers_get_every_message_by_one_stream(readers: Readers) -> None:
    shared = readers.add_two()
    shared.send(frame(0, 2), frame(2, 1))
    assert readers.values(0, 3) == readers.values(1, 3) == [b"0", b"1", b"0"]
    assert len(readers.streams.opened) == 3


def test_a_reader_gets_the_watermark_from_a_replica_first(readers: Readers) -> None:
    readers.add()
    readers.streams.next(1).send(frame(0, 0))
    eventually(lambda: readers.fetchers[0].watermark_known)
    second = readers.add()
    readers.streams.next(2)
    assert not second.watermark_known, "what the first one knows may be old"


def test_a_reader_goes_on_by_itself_when_the_shared_stream_breaks(readers: Readers) -> None:
    shared = readers.add_two()
    shared.send(frame(0, 2), Unreachable("gone"))
    assert readers.values(0, 2) == readers.values(1, 2)
    own = [readers.streams.next(4), readers.streams.next(5)]
    assert [it.start for it in own] == [2, 2]
    for stream in own:
        stream.send(frame(2, 1))
    assert readers.values(0, 1) == readers.values(1, 1) == [b"0"]


def test_a_reader_goes_on_by_itself_when_the_one_with_the_stream_is_stopped(readers: Readers) -> None:
    shared = readers.add_two()
    shared.send(frame(0, 2))
    readers.values(1, 2)
    readers.fetchers[0].stop()
    own = readers.streams.next(4)
    assert (own.start, own.readers) == (2, 1)
    own.send(frame(2, 1))
    assert readers.values(1, 1) == [b"0"]


def test_a_reader_whose_program_is_slow_holds_nobody_up(readers: Readers) -> None:
    readers.add_subscriber(budget=1)
    readers.streams.opened[0].send(frame(0, 0))
    shared = readers.streams.next(3)
    shared.send(frame(0, 1), frame(1, 1))  # nobody takes the first one's
    assert readers.values(1, 2) == [b"0", b"0"]
    own = readers.streams.next(4)
    own.send(frame(2, 1))
    assert readers.values(1, 1) == [b"0"]
    assert readers.values(0, 2) == [b"0", b"0"]


def test_both_readers_learn_of_the_segments_end(readers: Readers) -> None:
    shared = readers.add_two()
    shared.send(frame(0, 1), frame(1, 0, sealed=pb.SealOutcome(end=1)))
    for reader in (0, 1):
        eventually(lambda reader=reader: not readers.fetchers[reader].alive)  # type: ignore[misc]
        items = [taken[1] for taken in iter(lambda buffer=readers.buffers[reader]: buffer.take(1 << 20), None)]  # type: ignore[misc]
        assert isinstance(items[0], FetchedRows) and items[1:] == [SegmentEnd(1)]


def test_a_frame_that_lacks_messages_is_not_taken(readers: Readers) -> None:
    readers.add_subscriber()
    (published,) = readers.tails._published.values()
    published.put(frame(1, 1))
    own = readers.streams.next(3)
    assert own.start == 0
    own.send(frame(0, 2))
    assert readers.values(1, 2) == [b"0", b"1"]


TOTAL = 600


class LogStreams:
    """Streams of a log that grows. Each breaks sooner or later, and begins a little before its position."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._changed = threading.Condition()
        self._end = 0
        self.rows = rows_of(TOTAL)

    def grow(self, rows: int) -> None:
        with self._changed:
            self._end += rows
            self._changed.notify_all()

    def open(self, segment: str, uid: str, replica: Replica, channels: object, readers: int) -> LogStream:
        with self._changed:
            return LogStream(self, self._random.randrange(2, 40), self._random.randrange(4))


class LogStream(ScriptedStream):
    def __init__(self, log: LogStreams, frames: int, overlap: int) -> None:
        self._log = log
        self._left = frames
        self._overlap = overlap
        self._aborted = False

    def frames(self, start: int) -> Iterator[TailFrame]:
        at = max(0, start - self._overlap)
        yield frame(at, 0, self._log._end)
        while True:
            with self._log._changed:
                while at >= self._log._end and not self._aborted:
                    self._log._changed.wait()
                end = min(self._log._end, at + 7)
            if self._aborted:
                return
            if self._left == 0:
                raise Unreachable("it broke")
            self._left -= 1
            rows = self._log.rows.slice(at, end - at)
            yield TailFrame(table=rows, first=at, watermark=self._log._end, nbytes=rows.nbytes)
            at = end

    def abort(self) -> None:
        with self._log._changed:
            self._aborted = True
            self._log._changed.notify_all()


@pytest.mark.parametrize("seed", range(3))
def test_many_readers_get_each_message_once_whatever_breaks(
    readers: Readers, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    log = LogStreams(seed)
    monkeypatch.setattr(tail_fetcher, "TailStream", log.open)
    random_ = random.Random(seed)
    for _ in range(6):
        readers.add(budget=random_.choice([1, 1 << 20]))
    added = 0
    while added < TOTAL:
        rows = random_.randrange(1, 20)
        log.grow(min(rows, TOTAL - added))
        added += rows
        if random_.random() < 0.2:
            eventually(lambda: readers.fetchers[random_.randrange(6)].watermark_known)
    expected = [b"%d" % number for number in range(TOTAL)]
    for reader in range(6):
        assert readers.values(reader, TOTAL) == expected
