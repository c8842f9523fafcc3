"""A simulated broker process: its segments, the calls that it serves, its reports, and its shutdown.

A restart is another Broker with a new incarnation at the same address. It recovers the journals of former ones, if any.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from smq_core.errors import NotHosted, SmqError, Unavailable, WrongIncarnation
from smq_core.model.entities import Segment
from smq_core.replica.segment_replica import ReplicaState
from smq_core.scaling.segment_load import TrafficCounters
from smq_operator.cleanup.unreferenced_uploads import WrittenUploads
from support.sim.brokers.hosted_segment import SimulatedSegment
from support.sim.brokers.recovered_log import RecoveredLog
from support.sim.brokers.replication import ReplicaServer
from support.sim.clients.uploads import MAX_AGE
from support.sim.engine.network import SimulatedStream
from support.sim.engine.world import MS, SECOND, Process, Steps
from support.sim.filer import claims
from support.sim.filer.chunk_chain import LAYOUT, SimulatedChain

if TYPE_CHECKING:
    from support.sim.histories.protocol import History

TICK = 200 * MS


class SimulatedBrokerLoad(NamedTuple):
    """The load in a broker's report: each primary's counters, and the usage of its memory.

    ``begun`` are the segments that do not wait for a predecessor. ``written`` is what each primary has written, by
    segment: the chain's end, and the age of the oldest upload that a message names that is not in a chunk.
    """

    segments: dict[str, TrafficCounters]
    memory: float
    begun: frozenset[str]
    written: Mapping[str, WrittenUploads] = MappingProxyType({})


class SimulatedBroker:
    def __init__(self, history: History, address: str, name: str) -> None:
        self.history = history
        self.world = history.world
        self.network = history.network
        self.store = history.store
        self.checker = history.checker
        self.settings = history.settings
        self.address = address
        self.name = name
        self.incarnation = self.world.unique(f"{name}.")
        self.process = Process(self.world, address, self.incarnation)
        self.process.node = self
        self.skew = 0
        self.hosted_segments: dict[str, SimulatedSegment] = {}
        self.tombs: set[str] = set()
        self.disk = history.journals.disk_of(name)
        self.recovered: dict[str, dict[str, RecoveredLog]] = {}
        """The former incarnations for which this process answers: their logs, by segment."""
        self._recover()
        self.leaving = False
        self.takes_producers = True
        self.last_answers: dict[str, int] = {}
        """By leader: the number of its last answer to a report."""
        self._leader_seen_at = self.world.now
        self._layout: tuple[Any, int] = (None, -SECOND)
        self._leaders = history.leader_addresses
        self.network.listening[address] = self.process
        self.process.start(self._tick())
        self.process.start(self._report())
        if any(self.recovered.values()):
            self.process.start(self._drop_needless())

    def _recover(self) -> None:
        """Reads the journals of all former incarnations, before the first report."""
        if self.disk is None:
            return
        for incarnation, held in self.disk.former().items():
            dice = self.history.journals.dice
            logs = {name: RecoveredLog(self, it, it.recover(dice)) for name, it in held.items()}
            self.recovered[incarnation] = logs
            for log in logs.values():
                words = f"recovers {log.machine.chain_end}..{log.machine.end} of {incarnation}"
                self.world.note(self.process.name, log.name, words + ("" if log.complete else ", incomplete"))
        self.disk.begin(self.incarnation)

    def clock(self) -> int:
        """This process's clock, which may jump."""
        return self.world.now + self.skew

    def primaries_capacity(self) -> int:
        used = sum(h.machine.tail_bytes for h in self.hosted_segments.values() if h.machine.config.is_primary)
        return self.settings.primary_budget - used

    # ---- actions

    def on_open(self, segment: Segment, incarnation: str) -> Steps:
        """Opens a segment once per incarnation. A segment that was hosted or refused before is never opened again."""
        self._must_be(incarnation)
        if segment.name in self.tombs:
            raise NotHosted(f"{segment.name} is never opened here")
        if segment.name not in self.hosted_segments:
            self.hosted_segments[segment.name] = hosted = SimulatedSegment(self, segment)
            self.checker.opened(hosted)
            self.world.note(self.process.name, segment.name, f"opened: {hosted.machine.state}")
            hosted.start()
        return self.settings.credit
        yield

    def on_seal(
        self, segment: str, incarnation: str, known_watermark: int | None = None, accept_incomplete: bool = False
    ) -> Steps:
        if incarnation in self.recovered and incarnation != self.incarnation:
            return (yield from self._seal_recovered(segment, incarnation, known_watermark, accept_incomplete))
        self._must_be(incarnation)
        hosted = self.hosted_segments.get(segment)
        if hosted is None:
            self.tombs.add(segment)
            raise NotHosted(f"{segment} is not held here and never will be", certain=True)
        outcome = hosted.machine.outcome or (yield hosted.seal())
        self.checker.record_outcome(outcome, self.process.name)
        return outcome

    def _seal_recovered(
        self, segment: str, incarnation: str, known_watermark: int | None, accept_incomplete: bool
    ) -> Steps:
        log = self.recovered[incarnation].get(segment)
        if log is None:
            raise NotHosted(f"{segment} was not held by {incarnation}", certain=self._is_whole(incarnation))
        outcome = log.outcome or (yield from log.seal(known_watermark, accept_incomplete=accept_incomplete))
        self.checker.record_outcome(outcome, self.process.name)
        self._drop(log)
        return outcome

    def _drop_needless(self) -> Steps:
        """Drops recovered logs that nobody will ever request."""
        while any(self.recovered.values()):
            yield self.world.between(2 * SECOND, 4 * SECOND)
            layout = None
            try:
                found = yield self.store.get(self.process, LAYOUT)
                layout = found[0] if found is not None else None
            except SmqError:
                continue
            for logs in list(self.recovered.values()):
                for log in list(logs.values()):
                    if (yield from log.is_needless(layout)):
                        self._drop(log)

    def _drop(self, log: RecoveredLog) -> None:
        logs = self.recovered.get(log.incarnation, {})
        logs.pop(log.name, None)
        if not logs and not self._is_whole(log.incarnation):
            self.recovered.pop(log.incarnation, None)
        assert self.disk is not None
        self.disk.drop(log.incarnation, log.name)

    def _is_whole(self, incarnation: str) -> bool:
        """Whether the journal of that former incarnation certainly names all segments that it hosted."""
        assert self.disk is not None
        return self.disk.whole.get(incarnation, False)

    def on_flush(self, segment: str, incarnation: str) -> Steps:
        self._must_be(incarnation)
        if segment in self.hosted_segments:
            self.hosted_segments[segment].pump(flush=True)
        return None
        yield

    def on_outcome(self, segment: str) -> Steps:
        """The outcome of any segment, from memory or from the chain."""
        hosted = self.hosted_segments.get(segment)
        outcome = hosted.machine.outcome if hosted is not None else None
        if outcome is None:
            outcome = yield from SimulatedChain(self.store, self.process, segment).find_seal()
        if outcome is None:
            raise Unavailable(f"{segment} is not sealed yet")
        self.checker.record_outcome(outcome, self.process.name)
        return outcome

    def on_claim(self, producer: str, instance: str, epoch: int | None) -> Steps:
        """Claims a producer id by compare-and-swap of its document. Raises ProducerFenced, StoreUnavailable."""
        return (yield from claims.claim(self.store, self.process, producer, instance, epoch))

    def on_locate(self) -> Steps:
        layout, at = self._layout
        if self.world.now - at > 200 * MS:
            found = yield self.store.get(self.process, LAYOUT)
            if found is not None:
                layout = found[0]
                self._layout = layout, self.world.now
        if layout is None:
            raise Unavailable("there is no layout yet")
        return layout

    def on_tail(self, segment: str, incarnation: str, offset: int) -> Steps:
        self._must_be(incarnation)
        return self._hosted(segment).read_tail(offset)
        yield

    def on_status(self, incarnation: str) -> Steps:
        self._must_be(incarnation)
        return self.history.load_of(self)
        yield

    # ---- streams

    def on_produce(
        self, stream: SimulatedStream, segment: str, incarnation: str, producer: str, epoch: int, instance: str
    ) -> None:
        self._must_be(incarnation)
        hosted = self._hosted(segment)
        if not self.takes_producers:
            raise Unavailable("this broker is leaving")
        hosted.take_producer(stream, producer, epoch, instance)

    def on_replica(self, stream: SimulatedStream, segment: str, incarnation: str, primary: str) -> None:
        self._must_be(incarnation)
        ReplicaServer(self._hosted(segment), stream)

    # ---- background work

    def leave(self) -> None:
        """SIGTERM."""
        self.leaving = True
        self._leader_seen_at = self.world.now
        self.world.note(self.process.name, "", "SIGTERM: leaving")

    def _tick(self) -> Steps:
        count = 0
        while True:
            tick = self.history.tick
            yield self.world.between(tick * 3 // 4, tick * 5 // 4)
            count += tick // TICK
            for hosted in list(self.hosted_segments.values()):
                hosted.tick()
                if count >= 5:
                    hosted.heartbeat()
            count %= 5
            if self.leaving and self.world.now - self._leader_seen_at > 5 * SECOND:
                self._leave_alone()

    def _leave_alone(self) -> None:
        """Without a leader: stops to accept batches, writes what was acked, and exits."""
        self.takes_producers = False
        unflushed = False
        for hosted in self.hosted_segments.values():
            machine = hosted.machine
            if not machine.config.is_primary or machine.state is ReplicaState.SEALED:
                continue
            for stream in list(hosted.streams):
                stream.close()
            hosted.pump(flush=True)
            unflushed = unflushed or machine.chain_end < machine.watermark or machine.state is ReplicaState.FENCED
        for logs in list(self.recovered.values()):
            for log in logs.values():
                unflushed = True
                self.process.start(self._seal_recovered(log.name, log.incarnation, None, False))
        if not unflushed:
            self._exit()

    def _exit(self) -> None:
        self.world.note(self.process.name, "", "exits")
        self.history.kill_broker(self)

    def _report(self) -> Steps:
        while True:
            watermarks = {
                n: h.machine.watermark for n, h in self.hosted_segments.items() if h.machine.config.is_primary
            }
            unresponsive = {  # a dict, because the order of a set differs from process to process
                link.follower.incarnation: None
                for h in self.hosted_segments.values()
                if h.machine.state is ReplicaState.OPEN
                for link in h.links
                if link.unresponsive
            }
            held = sum(h.machine.state is not ReplicaState.SEALED for h in self.hosted_segments.values())
            load = self.history.load_of(self)
            report = (
                self.name,
                self.incarnation,
                self.address,
                self.leaving,
                held,
                watermarks,
                unresponsive,
                load,
                self._has_unwritten(),
                frozenset(self.recovered),
                dict(self.last_answers),
            )
            for leader in self._leaders:
                self.network.call(self.process, leader, "report", report, timeout=SECOND).then(self._answered)
            yield self.world.between(900 * MS, 1100 * MS)

    def _has_unwritten(self) -> bool:
        """Whether an open primary here has messages that are not in the filer."""
        return any(
            h.machine.config.is_primary and h.machine.state is ReplicaState.OPEN and h.machine.end > h.machine.chain_end
            for h in self.hosted_segments.values()
        )

    def counters(self) -> dict[str, TrafficCounters]:
        """The counters of each primary here."""
        return {
            name: TrafficCounters(
                hosted.machine.counters.messages,
                hosted.machine.counters.bytes,
                hosted.machine.counters.batches,
                tuple(hosted.histogram),
            )
            for name, hosted in self.hosted_segments.items()
            if hosted.machine.config.is_primary and hosted.machine.state is not ReplicaState.SEALED
        }

    def begun(self) -> frozenset[str]:
        held = self.hosted_segments.items()
        return frozenset(n for n, h in held if h.machine.state not in (ReplicaState.SEALED, ReplicaState.WAITING))

    def written(self) -> dict[str, WrittenUploads]:
        """What each primary here reports of its uploads, as ``HostedSegment.unwritten_upload_age`` has it."""
        found = {}
        for name, hosted in self.hosted_segments.items():
            machine = hosted.machine
            if machine.config.is_primary:
                waits = max(0, self.clock() - machine.tail[0].appended) if machine.tail else 0
                before = datetime.fromtimestamp((self.world.now - waits - 2 * MAX_AGE) / SECOND, UTC)
                found[name] = WrittenUploads(machine.chain_end, before)
        return found

    def memory_share(self) -> float:
        """The usage of the memory for primaries."""
        return 1 - self.primaries_capacity() / self.settings.primary_budget

    def _answered(self, answer: Any) -> None:
        if answer.error is None and self.process.alive and not self.process.paused:
            self._leader_seen_at = self.world.now
            may_leave, named, *numbers = answer.value
            self.last_answers |= dict(numbers)
            if may_leave and self.leaving:
                self.checker.may_leave(self)
                self._exit()
                return
            for name, hosted in self.hosted_segments.items():
                # A segment that the leader no longer names was sealed elsewhere, or this leader is outdated.
                if named is not None and name not in named and hosted.machine.state is not ReplicaState.SEALED:
                    hosted.start_seal_search()

    def _must_be(self, incarnation: str) -> None:
        if incarnation != self.incarnation:
            raise WrongIncarnation(f"this is {self.incarnation}, not {incarnation}")

    def _hosted(self, segment: str) -> SimulatedSegment:
        hosted = self.hosted_segments.get(segment)
        if hosted is None:
            raise NotHosted(f"{segment} is not held by {self.incarnation}")
        return hosted
