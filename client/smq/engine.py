"""The inside of a producer: routes pieces to lanes, takes acks, and carries on when segments are replaced.

One lock guards everything; callbacks run after it was let go. Threads: one per lane (``lanes.py``) with the reader of
its stream, one that watches (``_keep``), one that asks for outcomes while some are wanted. A partition goes on to a
successor only when its present lane is settled: what waits there goes first, so a key's order holds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from smq.cutting import Piece, Route, cut
from smq.delivery import Fate, timed_out
from smq.lanes import LaneRunner
from smq.outcomes import OutcomeAsker
from smq.stream import SegmentStream
from smq.tables import Shaper
from smq.view import Known, TopicView
from smq_core.errors import InvalidRequest, Overloaded, ProducerFenced, SmqError, UnknownTopic
from smq_core.leading import accepting
from smq_core.model import Replica, SealOutcome, Segment
from smq_core.producing import Delivered, Lane, Lanes, LaneState
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import error_from_pb, outcome_from_pb, segment_from_pb

log = logging.getLogger("smq")

TICK = 0.1
ASK_EVERY = 0.03
HINT_EVERY = 0.5
AHEAD_WITHIN = 10.0
"""Seconds after its last ack in which a lane's successors get their streams ahead. Others are opened when needed."""

ASK_WHILE_STREAMING_AFTER = 0.3
"""A primary tells the outcome on the stream itself; when it has said nothing for so many seconds, others are asked."""

DEFAULT_MAX_BATCH_BYTES = 16 << 20
"""Until a broker tells its own."""

UNKNOWN_OFFSET = (1 << 64) - 1
"""In acks: the batch is in the log, where is no longer known."""

Calls = list[Callable[[], None]]


class Engine:
    """See the module's docstring. ``timeout`` in seconds, ``max_in_flight`` in bytes."""

    def __init__(
        self, view: TopicView, shaper: Shaper, producer_id: str, epoch: int, timeout: float, max_in_flight: int
    ) -> None:
        self.view = view
        self.schema = shaper.schema
        self.uid = view.known.topic.uid
        self.producer_id = producer_id
        self.epoch = epoch
        self.timeout = timeout
        self.max_in_flight = max_in_flight
        self.lock = threading.Lock()
        self.lanes = Lanes(epoch)
        self.stopping = False
        self.failure: SmqError | None = None
        self.in_flight = 0
        self.max_batch_bytes = DEFAULT_MAX_BATCH_BYTES
        self._known: Known = view.known
        self._targets = Route.of(accepting(self._known.layout), self._known.layout.partitions)
        self._route = self._targets
        self._runners: dict[str, LaneRunner] = {}
        self._told: dict[str, SealOutcome] = {}
        self._room = threading.Condition(self.lock)
        self._hinted: dict[str, float] = {}
        self._routing = threading.Lock()
        self._asking: threading.Thread | None = None
        self._asker = OutcomeAsker(self._known.topic.name, self._known.topic.uid, producer_id, view.network)
        self._end = threading.Event()
        self.settled: Callable[[], None] = lambda: None
        """Called without the lock after some batches have got their outcomes."""
        self.lanes.know(self._known.layout.segments)
        view.listen(self._layout_changed)
        self._keeper = threading.Thread(target=self._keep, name=f"smq-producer-{view.name}", daemon=True)
        self._keeper.start()

    # ---- from the producer

    def reserve(self, nbytes: int, timeout: float) -> None:
        """Waits for room in the budget; something always fits when nothing is in flight. Raises Overloaded."""
        with self.lock:
            self._wait(nbytes, timeout)
            self.in_flight += nbytes

    def _wait(self, nbytes: int, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while self.in_flight and self.in_flight + max(nbytes, 1) > self.max_in_flight and self.failure is None:
            left = deadline - time.monotonic()
            if left <= 0 or not self._room.wait(left):
                raise Overloaded(
                    f"{self.in_flight} bytes are on the way to {self.view.name} and for {timeout} s there was no "
                    "room for more: brokers are slow or gone, or max_in_flight is small",
                    in_flight=self.in_flight,
                )
        self._check()

    def submit(self, piece: Piece, places: npt.NDArray[np.int32]) -> None:
        """Hands a whole batch over, whose ``cost`` was reserved. Raises what ended the producer."""
        with self._routing:
            while True:
                route = self._route
                parts = cut(piece, places, route)
                with self.lock:
                    self._check()
                    if route is not self._route:
                        continue  # the layout changed while we cut
                    for segment, part in parts:
                        self._enqueue(segment, part)
                    return

    def wait_for_room(self, timeout: float) -> None:
        """Waits until a batch more may be begun. Raises Overloaded, or what ended the producer."""
        with self.lock:
            self._wait(0, timeout)

    def take(self, nbytes: int) -> None:
        """Counts what was begun while there was room."""
        with self.lock:
            self.in_flight += nbytes

    @property
    def full(self) -> bool:
        return self.in_flight >= self.max_in_flight or self.failure is not None

    def give_up(self, fate: Fate, cost: int, error: BaseException) -> None:
        """A batch that could not be handed over."""
        with self.lock:
            self.in_flight = max(0, self.in_flight - cost)
            calls = fate.failed(None, error)
            self._room.notify_all()
        _run(calls)

    def close(self) -> None:
        """Ends all threads; what is still in flight fails. Repeatable."""
        self.view.unlisten(self._layout_changed)
        with self.lock:
            self.stopping = True
            runners = list(self._runners.values())
            for runner in runners:
                runner.wake.notify_all()
            self._room.notify_all()
        self._end.set()
        for runner in runners:
            runner.join(5)
        self._keeper.join(5)
        if self._asking is not None:
            self._asking.join(5)
        self.fail(InvalidRequest("the producer is closed"))

    def fail(self, error: SmqError) -> None:
        """The producer cannot go on: everything that has no outcome fails with this."""
        calls: Calls = []
        with self.lock:
            if self.failure is None:
                self.failure = error
            for lane in self.lanes.lanes.values():
                for piece in [*(s.piece for s in lane.in_flight), *lane.queue]:
                    assert isinstance(piece, Piece)
                    calls += piece.fate.failed(piece.rows, error)
                lane.in_flight.clear()
                lane.queue.clear()
                lane.unsent = 0
                lane.state = LaneState.DONE
            for runner in self._runners.values():
                runner.wake.notify_all()
            self.in_flight = 0
            self._room.notify_all()
        _run(calls)

    # ---- from the streams

    def on_reply(self, stream: SegmentStream, reply: pb.ProducerReply) -> None:
        kind = reply.WhichOneof("reply")
        calls: Calls = []
        fatal: SmqError | None = None
        with self.lock:
            runner = self._runners.get(stream.segment.name)
            if runner is None or runner.stream is not stream:
                return  # of a stream that was given up
            lane = runner.lane
            if lane.state is LaneState.DONE:
                return
            try:
                if kind == "opened":
                    last = reply.opened.last_sequence if reply.opened.HasField("last_sequence") else None
                    self.max_batch_bytes = reply.opened.max_batch_bytes or self.max_batch_bytes
                    lane.opened(last)
                    runner.opened()
                    runner.wake.notify_all()
                elif kind == "acks":
                    offsets = [None if o == UNKNOWN_OFFSET else o for o in reply.acks.first_offsets]
                    runner.acked_at = time.monotonic()
                    delivered = lane.acked(reply.acks.first_sequence, offsets)
                    calls = self._settle(delivered)
                    runner.wake.notify_all()
                elif kind == "sealed":
                    successors = tuple(segment_from_pb(s) for s in reply.sealed.successors)
                    calls = self._sealed(outcome_from_pb(reply.sealed), successors)
                elif kind == "error":
                    runner.failure = error_from_pb(reply.error)
                    if isinstance(runner.failure, UnknownTopic):
                        fatal = runner.failure  # nothing that comes later can change it
            except SmqError as error:
                fatal = error
        _run(calls)
        self.settled()
        if fatal is not None:
            self._unresolvable(stream, fatal)

    def on_end(self, stream: SegmentStream) -> None:
        calls: Calls = []
        with self.lock:
            runner = self._runners.get(stream.segment.name)
            if runner is not None and runner.stream is stream:
                runner.stream = None
                runner.lane.broke()
                runner.wake.notify_all()
                if runner.moved_at is not None:
                    calls = self._advance()
        _run(calls)

    def could_not_reach(self, replica: Replica, failure: SmqError | None) -> None:
        """Tells the leader, in the background: it may know better."""
        now = time.monotonic()
        with self.lock:
            if now - self._hinted.get(replica.incarnation, 0.0) < HINT_EVERY:
                return
            self._hinted[replica.incarnation] = now
        what = failure.message if failure is not None else "the stream broke"
        threading.Thread(target=self.view.hint, args=(replica.incarnation, what), daemon=True).start()

    def _unresolvable(self, stream: SegmentStream, error: SmqError) -> None:
        """A replica says what cannot be: fenced, or a log that is not what it was."""
        self.fail(error)
        stream.abort()

    # ---- the layout

    def _layout_changed(self, known: Known) -> None:
        calls: Calls = []
        gone: SmqError | None = None
        with self.lock:
            if known.topic.uid != self._known.topic.uid:
                gone = UnknownTopic(f"{self.view.name} was deleted and made anew: open a new producer")
            elif known.layout.version > self._known.layout.version:
                self._known = known
                self.lanes.know(known.layout.segments)
                self._retarget(accepting(known.layout))
                calls = self._advance()
                self._drop_unused()
                self._open_ahead()
                names = {s.name for s in known.layout.segments}
                self.lanes.drop_done(names | {p for s in known.layout.segments for p in s.predecessors})
        _run(calls)
        if gone is not None:
            self.fail(gone)

    def _retarget(self, segments: Iterable[Segment]) -> None:
        """Takes in where partitions should go. What is known to be sealed is no target, however old the news is."""
        targets = list(segments)
        done = {n for n, lane in self.lanes.lanes.items() if lane.state is LaneState.DONE}
        fresh = Route.of(targets, len(self._targets.table))
        for segment in targets:
            if segment.name in done:
                fresh = fresh.replaced(segment, self._targets)
        self._targets = fresh

    def _drop_unused(self) -> None:
        """Ends streams that were opened ahead to segments that were replaced before anything went there."""
        used = {s.name for s in (*self._targets.segments, *self._route.segments)}
        for name, runner in list(self._runners.items()):
            if name not in used and runner.lane.idle:
                runner.lane.state = LaneState.DONE
                runner.wake.notify_all()
                del self._runners[name]
                self._told.pop(name, None)

    def _open_ahead(self) -> None:
        """Streams to the successors of what is written."""
        since = time.monotonic() - AHEAD_WITHIN
        written = {n for n, runner in self._runners.items() if runner.acked_at > since or not runner.lane.idle}
        for segment in self._targets.segments:
            if segment.name not in self._runners and not written.isdisjoint(segment.predecessors):
                self._runners[segment.name] = LaneRunner(self, self.lanes.lane(segment), ahead=True)

    def _advance(self) -> Calls:
        """Moves every lane on whose segment is being replaced, as far as its outcome is known or not needed."""
        calls: Calls = []
        moved = True
        while moved:
            moved = False
            wanted = {s.name for s in self._targets.segments}
            for segment in self._route.segments:
                if segment.name in wanted:
                    continue
                lane = self.lanes.lanes.get(segment.name)
                outcome = self._told.get(segment.name)
                if lane is None or lane.state is LaneState.DONE or outcome is not None or self._left(lane):
                    calls += self._go_on(segment, outcome)
                    moved = True
                    break
                runner = self._runners[segment.name]
                if runner.moved_at is None:
                    runner.moved_at = time.monotonic()
                self._ask()
        return calls

    def _left(self, lane: Lane) -> bool:
        """Whether nothing keeps the lane at a segment that is being replaced. While its stream works, something does.

        The segment still takes what is written, and says on the stream when it does no more. Who leaves earlier only
        waits for the successors.
        """
        return not lane.in_flight and lane.state is not LaneState.STREAMING

    def _sealed(self, outcome: SealOutcome, successors: tuple[Segment, ...]) -> Calls:
        """The outcome of a segment came, from its stream or from anybody."""
        name = outcome.segment
        lane = self.lanes.lanes.get(name)
        if lane is None or lane.state is LaneState.DONE:
            return []
        self._told[name] = outcome
        runner = self._runners[name]
        if runner.moved_at is None:
            runner.moved_at = time.monotonic()
        if any(s.name == name for s in self._targets.segments) and successors:
            self.lanes.know(successors)
            overlay = self._targets.under([s for s in successors if not s.successors])
            self._targets = self._targets.replaced(lane.segment, overlay)
            self._drop_unused()
        self._ask()  # until somebody knows the successors too
        return self._advance()

    def _go_on(self, segment: Segment, outcome: SealOutcome | None) -> Calls:
        """This segment's partitions go to their targets from now on, and first what its lane still holds."""
        calls: Calls = []
        again: list[object] = []
        lane = self.lanes.lanes.get(segment.name)
        if lane is not None and lane.state is not LaneState.DONE:
            known = outcome.producers.get(self.producer_id) if outcome is not None else None
            delivered, again = lane.resolve(known, self.epoch)
            calls = self._settle(delivered)
        self._route = self._route.replaced(segment, self._targets)
        for piece in again:
            assert isinstance(piece, Piece)
            for target, part in cut(piece, piece.batch.column(0).to_numpy(), self._route):
                self._enqueue(target, part)
        runner = self._runners.pop(segment.name, None)
        if runner is not None:
            runner.wake.notify_all()
        self._told.pop(segment.name, None)
        for other in self._runners.values():
            other.wake.notify_all()  # a predecessor is settled: some may open now
        log.info(
            "%s is replaced by %s: %d batches go on",
            segment.name,
            ", ".join(s.name for s in self._route.segments if segment.name in s.predecessors) or "others",
            len(again),
        )
        return calls

    def _enqueue(self, segment: Segment, piece: Piece) -> None:
        lane = self.lanes.lane(segment)
        lane.queue.append(piece)
        runner = self._runners.get(segment.name)
        if runner is None:
            self._runners[segment.name] = LaneRunner(self, lane)
        else:
            runner.wake.notify()
            if runner.moved_at is not None:
                self._ask()  # it may be that the stream never tells

    def _settle(self, delivered: list[Delivered]) -> Calls:
        calls: Calls = []
        for one in delivered:
            piece = one.piece
            assert isinstance(piece, Piece)
            calls += piece.fate.delivered(piece.rows, one.segment, one.first_offset)
            self.in_flight -= piece.cost
        if delivered:
            self._room.notify_all()
        return calls

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure

    # ---- outcomes

    def _ask(self) -> None:
        """Sees to it that somebody asks for the outcomes that are wanted. The caller holds the lock."""
        if self._asking is None or not self._asking.is_alive():
            self._asking = threading.Thread(target=self._ask_all, name=f"smq-outcomes-{self.view.name}", daemon=True)
            self._asking.start()

    def _wanted(self) -> list[tuple[str, list[str]]] | None:
        """Which outcomes to ask for now, and whom; None when none will be wanted."""
        now = time.monotonic()
        moving = [r for r in self._runners.values() if r.moved_at is not None and not r.lane.idle]
        if self.stopping or self.failure is not None or not moving:
            self._asking = None
            return None
        found = []
        for runner in moving:
            assert runner.moved_at is not None
            heard = max(runner.moved_at, runner.acked_at)
            if runner.stream is not None and now - heard < ASK_WHILE_STREAMING_AFTER:
                continue
            found.append((runner.lane.segment.name, self._holders(runner.lane.segment)))
        return found

    def _holders(self, segment: Segment) -> list[str]:
        """Addresses to ask: those that hold a successor first, then any broker of the topic."""
        living = self._known.layout.segments
        near = [r.address for s in self._targets.segments if s.range.overlaps(segment.range) for r in s.replicas]
        return list(dict.fromkeys([*near, *(r.address for s in living for r in s.replicas)]))

    def _ask_all(self) -> None:
        while True:
            with self.lock:
                wanted = self._wanted()
            if wanted is None:
                return
            for name, addresses in wanted:
                found = self._asker.ask(name, addresses)
                if found is None:
                    continue
                calls: Calls = []
                fatal: ProducerFenced | None = None
                with self.lock:
                    try:
                        calls = self._sealed(*found)
                    except ProducerFenced as error:
                        fatal = error
                _run(calls)
                if fatal is not None:
                    self.fail(fatal)
            if self._end.wait(ASK_EVERY):
                return

    # ---- watching

    def _keep(self) -> None:
        while not self._end.wait(TICK):
            now = time.monotonic()
            with self.lock:
                silent = [r.stream for r in self._runners.values() if r.stream is not None and r.stream.silent(now)]
                calls = self._expire(now)
            gone = self.view.deleted
            if gone is not None and self.failure is None:
                self.fail(gone)
            for stream in silent:
                log.info("%s is silent: its stream is given up", stream.segment.name)
                stream.abort()
            _run(calls)

    def _expire(self, now: float) -> Calls:
        """Reports pieces that are too old. Those never sent are dropped; others stay: their outcome is not known."""
        calls: Calls = []
        for lane in self.lanes.lanes.values():
            for sent in lane.in_flight:
                assert isinstance(sent.piece, Piece)
                if now - sent.piece.born < self.timeout:
                    break
                if not sent.piece.expired:
                    sent.piece.expired = True
                    calls += sent.piece.fate.failed(sent.piece.rows, timed_out(self.timeout))
            while lane.queue:
                piece = lane.queue[0]
                assert isinstance(piece, Piece)
                if now - piece.born < self.timeout:
                    break
                lane.queue.popleft()
                self.in_flight -= piece.cost
                self._room.notify_all()
                calls += piece.fate.failed(piece.rows, timed_out(self.timeout))
        return calls


def _run(calls: Calls) -> None:
    for call in calls:
        call()
