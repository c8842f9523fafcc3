"""A simulated broker process: the calls that it serves, its reports, and its shutdown, around the product's shells.

A restart is another Broker with a new incarnation at the same address. It recovers the journals of former ones, if any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.errors import NotHosted, Unavailable
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Segment, Topic
from smq_core.replica.segment_replica import ReplicaState
from smq_core.scaling.segment_load import TrafficCounters
from smq_operator.cleanup.unreferenced_uploads import WrittenUploads
from support.sim.brokers.hosted_segment import SimulatedSegment
from support.sim.brokers.kafka_stream import SimulatedKafkaStream
from support.sim.brokers.replication import ReplicaServer
from support.sim.brokers.shells import BrokerShells
from support.sim.clients.uploads import MAX_AGE
from support.sim.engine.network import SimulatedStream
from support.sim.engine.world import MS, SECOND, Process, Steps
from support.sim.filer import claims
from support.sim.filer.chunk_chain import LAYOUT, UID
from support.sim.filer.virtual_times import object_time

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
        self.disk = history.journals.disk_of(name)
        self.leaving = False
        self.takes_producers = True
        self.last_answers: dict[str, int] = {}
        """By leader: the number of its last answer to a report."""
        self._leader_seen_at = self.world.now
        self._layout: tuple[Any, int] = (None, -SECOND)
        self._leaders = history.leader_addresses
        with self.world.entered():
            self.shells = BrokerShells(self)
        self.network.listening[address] = self.process
        self.process.start(self._tick())
        self.process.start(self._report())

    def clock(self) -> int:
        """This process's clock, which may jump."""
        return self.world.now + self.skew

    def state_changed(self) -> None:
        """A segment has another state."""
        for segment in self.hosted_segments.values():
            if segment.hosted.is_primary and segment.machine.state is ReplicaState.OPEN:
                self.checker.producers.opened(segment.name)

    def segment_of(self, hosted: HostedSegment) -> SimulatedSegment:
        """The segment, also while it opens."""
        if hosted.name not in self.hosted_segments:
            self.hosted_segments[hosted.name] = segment = SimulatedSegment(self, hosted)
            self.checker.opened(segment)
            self.world.note(self.process.name, hosted.name, f"opened: {hosted.machine.state}")
        return self.hosted_segments[hosted.name]

    def topic(self) -> Topic:
        """The topic with the flush settings of the history."""
        topic, settings = self.history.topic, self.settings
        flush = {name: getattr(settings, name) for name in ("flush_bytes", "flush_interval", "flush_max_interval")}
        return replace(topic, spec=replace(topic.spec, **flush))

    # ---- actions

    def on_open(self, segment: Segment, incarnation: str) -> Steps:
        """Opens a segment once per incarnation. A segment that was hosted or refused before is never opened again."""
        self.shells.registry.check_incarnation(incarnation)
        opener, topic = self.shells.opener, self.topic()
        hosted = yield self.process.call(lambda: opener.open(topic, segment, MAX_AGE), "opens")
        self.segment_of(hosted)
        return hosted.memory.credit

    def on_seal(
        self, segment: str, incarnation: str, known_watermark: int | None = None, accept_incomplete: bool = False
    ) -> Steps:
        def seal() -> SealOutcome:
            if self.shells.recovered.holds(incarnation):
                hosted = self._find_recovered(segment, incarnation, known_watermark or 0, accept_incomplete)
            else:
                self.shells.registry.check_incarnation(incarnation)
                hosted = self.shells.registry.get_or_refuse(UID, segment)
            return self.shells.sealer.seal(hosted, (), "requested", lambda: False)

        outcome = yield self.process.call(seal, "seals")
        self.checker.record_outcome(outcome, self.process.name)
        return outcome

    def _find_recovered(self, segment: str, incarnation: str, known: int, accept_incomplete: bool) -> HostedSegment:
        """As ``Actions`` finds the log of a former incarnation that is to be sealed."""
        recovered = self.shells.recovered.find(incarnation, UID, segment)
        if recovered.machine.outcome is None:
            if accept_incomplete:
                recovered.accept_incomplete(known)
            else:
                recovered.check_complete(known)
            self.checker.losses.sealing(recovered, known)
        return recovered

    def on_flush(self, segment: str, incarnation: str) -> Steps:
        self.shells.registry.check_incarnation(incarnation)
        hosted, sealer = self.shells.registry.hosted(UID, segment), self.shells.sealer
        if hosted is not None:
            yield self.process.call(lambda: sealer.flush_ahead(hosted), "flushes")

    def on_outcome(self, segment: str) -> Steps:
        """The outcome of any segment, from memory or from the chain."""
        sealer, topic = self.shells.sealer, self.history.topic
        outcome, _ = yield self.process.call(lambda: sealer.outcome(topic.name, topic.uid, segment), "outcome")
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
        self.shells.registry.check_incarnation(incarnation)
        return self._hosted(segment).read_tail(offset)
        yield

    def on_status(self, incarnation: str) -> Steps:
        self.shells.registry.check_incarnation(incarnation)
        return self.history.load_of(self)
        yield

    # ---- streams

    def on_produce(
        self, stream: SimulatedStream, segment: str, incarnation: str, producer: str, epoch: int, instance: str
    ) -> None:
        self.shells.registry.check_incarnation(incarnation)
        hosted = self._hosted(segment)
        if not self.takes_producers:
            raise Unavailable("this broker is leaving")
        hosted.take_producer(stream, producer, epoch, instance)

    def on_kafka(self, stream: SimulatedStream, segment: str, incarnation: str) -> None:
        self.shells.registry.check_incarnation(incarnation)
        hosted = self._hosted(segment)
        if not self.takes_producers:
            raise Unavailable("this broker is leaving")
        SimulatedKafkaStream(hosted, stream)

    def on_replica(self, stream: SimulatedStream, segment: str, incarnation: str, primary: str) -> None:
        self.shells.registry.check_incarnation(incarnation)
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
        for hosted in self.shells.registry.all():
            for stream in list(hosted.streams) if hosted.machine.state is not ReplicaState.SEALED else ():
                stream.close()  # type: ignore[attr-defined]
        shells = self.shells
        unwritten = shells.flusher.flush_all() + shells.recovered.waiting()
        shells.sealer.seal_fenced()
        self.process.call(lambda: shells.recovered.seal_complete(self._seal_at_exit), "seals")
        if not unwritten:
            self._exit()

    def _seal_at_exit(self, recovered: HostedSegment) -> None:
        self.checker.losses.sealing(recovered, 0)
        self.shells.sealer.start_at_exit(recovered)

    def _exit(self) -> None:
        self.world.note(self.process.name, "", "exits")
        self.history.kill_broker(self)

    def _report(self) -> Steps:
        while True:
            watermarks = {
                n: h.machine.watermark for n, h in self.hosted_segments.items() if h.machine.config.is_primary
            }
            unresponsive = dict.fromkeys(self.shells.registry.unresponsive_followers())
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
                frozenset(self.shells.recovered.incarnations()),
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
                tuple(hosted.hosted.histogram.slices),
            )
            for name, hosted in self.hosted_segments.items()
            if hosted.machine.config.is_primary and hosted.machine.state is not ReplicaState.SEALED
        }

    def begun(self) -> frozenset[str]:
        held = self.hosted_segments.items()
        return frozenset(n for n, h in held if h.machine.state not in (ReplicaState.SEALED, ReplicaState.WAITING))

    def written(self) -> dict[str, WrittenUploads]:
        """What each primary here reports of its uploads."""
        primaries = {name: it.hosted for name, it in self.hosted_segments.items() if it.hosted.is_primary}
        before = {
            name: object_time(self.world.now - hosted.unwritten_upload_age()) for name, hosted in primaries.items()
        }
        return {name: WrittenUploads(hosted.machine.chain_end, before[name]) for name, hosted in primaries.items()}

    def memory_share(self) -> float:
        """The usage of the memory for primaries."""
        used, limit = self.shells.memory.primary_usage()
        return used / limit

    def _answered(self, answer: Any) -> None:
        if answer.error is None and self.process.alive and not self.process.paused:
            self._leader_seen_at = self.world.now
            may_leave, named, *numbers = answer.value
            self.last_answers |= dict(numbers)
            if may_leave and self.leaving:
                self.checker.may_leave(self)
                self._exit()
                return
            if named is not None:
                self.shells.watcher.set_assigned_segments(named)

    def _hosted(self, segment: str) -> SimulatedSegment:
        hosted = self.shells.registry.hosted(UID, segment)
        if hosted is None:
            raise NotHosted(f"{segment} is not held by {self.incarnation}")
        return self.segment_of(hosted)
