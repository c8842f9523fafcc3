"""An elastic history: brokers report their load, leaders split, merge, move and scale the fleet, under faults.

The load follows a shape and ends. Then the fleet must shrink to its minimum and stay there. The waits of the policy are
a few times shorter than real ones (``SHORTENED_WAITS``), so that a history is a minute long. ``run(seed)`` works as in
``protocol``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from types import ModuleType
from typing import Any
from unittest.mock import patch

from smq_core import invariants as inv
from smq_core.invariants import Violation
from smq_core.model.entities import Durability, Layout, Reason, Topic, TopicSpec
from smq_core.model.keyspace import Partitioner
from smq_core.scaling import autoscaler, broker_fleet, segment_load, topic_load
from smq_core.scaling.broker_fleet import FleetPolicy
from smq_operator.cleanup import retention as retain
from smq_operator.cleanup import unreferenced_uploads
from smq_operator.file_lists import topic_file_lists
from smq_operator.reconcile import effects
from smq_storage.catalog import paths
from smq_storage.catalog.topics import CurrentTopic
from smq_storage.object_store.json_codec import to_json
from support.sim.brokers.broker import SimulatedBroker, SimulatedBrokerLoad
from support.sim.brokers.deployment import SimulatedDeployment
from support.sim.checks.elasticity_checker import ElasticChecker, unchanged_segments
from support.sim.checks.end_state import check_all
from support.sim.clients import loads
from support.sim.clients.loaded_producer import STEP, LoadedProducer
from support.sim.clients.messages import HistorySettings
from support.sim.clients.producer import SimulatedProducer
from support.sim.clients.reader import SimulatedReader
from support.sim.engine.virtual_asyncio import VirtualLoop
from support.sim.engine.world import MS, SECOND
from support.sim.filer.blocking_store import BlockingChain
from support.sim.filer.chunk_chain import LAYOUT, TOPIC, UID
from support.sim.filer.file_lists import file_entry
from support.sim.histories.faults import FaultSchedule
from support.sim.histories.protocol import History, HistoryFailure
from support.sim.histories.protocol import run as run_history
from support.sim.leaders import retention as retaining
from support.sim.leaders.autoscaling_pause import AutoscalingPauseScenario
from support.sim.leaders.elastic_leader import ElasticLeader
from support.sim.leaders.orphaned_files import OrphanedFilesScenario
from support.sim.leaders.protocol_leader import SimulatedLeader
from support.sim.leaders.topic_deletion import TopicDeletionScenario

# The time limit for everything to finish after the faults, and again for the topic to shrink to its minimum.
RECOVERY_TIME = 120 * SECOND
QUIET_TIME = 10 * SECOND
# For this long after the last messages a leader may still split.
LATE_SPLIT_WINDOW = 5 * SECOND
SHORTENED_WAITS: list[tuple[ModuleType, str, int]] = [
    (segment_load, "SLOW_WINDOW", 6 * SECOND),
    (topic_load, "MOVE_INTERVAL", 2 * SECOND),
    (topic_load, "MOVE_COOLDOWN", 2 * SECOND),
    (autoscaler, "CROWDED_MERGE_AFTER", 3 * SECOND),
    (broker_fleet, "SCALE_IN_AFTER", 6 * SECOND),
    (broker_fleet, "MEMORY_SCALE_OUT_COOLDOWN", 5 * SECOND),
]


class ElasticFaultSchedule(FaultSchedule):
    """Manual requests keep the number of segments, because only the policy may change it."""

    requests = ("roll", "move")

    history: ElasticHistory

    def __init__(self, history: ElasticHistory) -> None:
        self.none = history.world.chance(0.12)
        """True if the history has no faults, so that the leader must act in time."""
        if self.none:
            self.history, self.world, self.over, self.kinds = history, history.world, False, []
        else:
            super().__init__(history)
            if self.world.seed % 4 == 2:
                self.world.after(history.horizon // 3, lambda: self._do(self.throttle))

    def _do(self, kind: Callable[[], object]) -> None:
        """Skips the fault if no broker runs at the moment, because there is none to choose."""
        if self.history.brokers:
            super()._do(kind)

    def throttle(self) -> None:
        """For a while the store answers slowly, and refuses most requests."""
        store = self.history.store
        faults, before = store.faults, (store.faults.refused, store.faults.failed_get, store.slowdown)
        faults.refused, faults.failed_get, store.slowdown = 0.6, 0.4, store.slowdown * 5
        self._log("the store throttles")

        def ends() -> None:
            faults.refused, faults.failed_get, store.slowdown = before
            self._log("the store throttles no more")

        self._later(self.world.between(SECOND, 6 * SECOND), ends)

    def terminate_broker(self) -> None:
        """Deletes one broker, or all; others start in their place."""
        brokers = [b for a, b in self.history.brokers.items() if a in self.history.deployment.slots]
        for broker in brokers if self.world.chance(0.2) else self.world.random.sample(brokers, min(1, len(brokers))):
            self.history.deployment.replace(broker)

    def jump_clock(self) -> None:
        before = {leader: leader.skew for leader in self.history.leaders.values()}
        super().jump_clock()
        checker = self.history.checker
        assert isinstance(checker, ElasticChecker)
        checker.jumped += sum(abs(leader.skew - skew) for leader, skew in before.items())


class ElasticHistory(History):
    checker: ElasticChecker
    checker_kind = ElasticChecker
    faults_kind = ElasticFaultSchedule
    tick = 600 * MS
    keys = 6
    send_interval = 400 * MS
    leader_pause = 200 * MS, 350 * MS
    deletion_share = 0.12
    """The share of histories whose topic is deleted."""

    def __init__(self, seed: int) -> None:
        self.limits = retaining.draw(seed)
        self.deleting = TopicDeletionScenario(seed, self.deletion_share)
        if self.deleting.drawn:
            self.journal_share = 0
        self.loops: list[VirtualLoop] = []
        """The leaders' event loops, whose tasks are cancelled at the end."""
        super().__init__(seed)

    def has_file_lists(self) -> bool:
        return not self.deleting.drawn

    def draw(self, dice: Random) -> None:
        self.decisions: list[tuple[int, str, str]] = []
        self.settings = HistorySettings(
            partitions=dice.choice([16, 32, 64]),
            credit=dice.choice([6000, 12000]),
            primary_budget=dice.choice([8000, 30000]),
            flush_bytes=dice.choice([2000, 5000]),
            flush_interval=dice.choice([1, 2, 4]) * SECOND,
            limits=self.producer_scenario.limits,
        )
        self.load = loads.draw(dice, self.settings.partitions)
        self.horizon = int(self.load.seconds * SECOND)
        self.topic = self.deleting.of(Topic("default/t", "uid", self.limits.of(self._spec(dice))))
        self.policy = FleetPolicy(
            minimum=dice.choice([2, 3]),
            maximum=dice.choice([4, 5, 6]),
            bytes_per_second=dice.choice([1_500.0, 3_000.0, 1e9]),
        )
        self.orphan_scenario = OrphanedFilesScenario(self)
        self.leader_addresses = ["leader-0", "leader-1"][: dice.choice([1, 1, 2])]
        spec, checker = self.topic.spec, self.checker
        checker.spec, checker.policy = spec, self.policy
        checker.several_leaders = len(self.leader_addresses) > 1
        self.least_brokers = min(max(self.policy.minimum, spec.replicas), self.policy.maximum)
        self.zones = dice.choice([0, 0, 2, 3])
        self.deployment = SimulatedDeployment(self, self.least_brokers)
        for i, address in enumerate(self.deployment.slots):
            self.start_broker(address, f"b{i}")
        for address in self.leader_addresses:
            self.start_leader(address)
        self.number_of_producers = 2
        for i in range(self.number_of_producers):
            self.producers.append(self.make_producer(f"p{i}", 0, self.horizon // STEP))
        self.readers.append(SimulatedReader(self, "r0", {}, dice.choice([500, 1500]) * MS, []))
        for i in range(dice.choice([0, 1, 2] if self.limits.on else [0, 0, 0, 1, 2])):
            self.members.append(self.make_member("g", f"m{i}"))
        self.groups = ["g"] if self.members else []
        if self.limits.on or self.references is not None:
            self.store.put_at_once(f"doc/{paths.current(TOPIC)}", to_json(CurrentTopic(UID)))
        if self.limits.on:
            retaining.begin(self)
        if self.deleting.drawn:
            self.deleting.begin(self)
            checker.deleting = self.deleting
        self.faults = self.faults_kind(self)
        self.pausing = AutoscalingPauseScenario(self)
        checker.manual_changes = self.pausing.drawn

    def _spec(self, dice: Random) -> TopicSpec:
        many = self.load.name == "many"
        least = 10 if many else dice.choice([1, 1, 2, 3])
        return TopicSpec(
            partitions=self.settings.partitions,
            partitioner=Partitioner.KAFKA,
            durability=dice.choice([Durability.REPLICATED] * 3 + [Durability.STORED]),
            replicas=2 if many else dice.choice([2, 2, 3]),
            min_segments=least,
            max_segments=max(least, dice.choice([3, 4, 6, 8])) + (3 if many else 0),
            target_messages_per_second=int(loads.TARGET),
            split_after=dice.choice([1, 2]) * SECOND,
            merge_after=dice.choice([4, 7]) * SECOND,
            roll_bytes=dice.choice([1 << 40, 1 << 40, 6_000]),
            roll_age=dice.choice([1 << 60, 1 << 60, 9 * SECOND]),
        )

    def load_of(self, broker: SimulatedBroker) -> Any:
        return SimulatedBrokerLoad(broker.counters(), broker.memory_share(), broker.begun(), broker.written())

    def make_leader(self, address: str) -> SimulatedLeader:
        return ElasticLeader(self, address)

    def make_producer(self, name: str, epoch: int | None, batches: int, run: str = "") -> SimulatedProducer:
        return LoadedProducer(self, name, epoch, batches, run)

    def zone_of(self, address: str) -> str:
        return f"zone-{int(address.rpartition('-')[2]) % self.zones}" if self.zones else ""

    def restart_reader(self, at: int) -> None:
        if self.readers[at].process.alive:
            super().restart_reader(at)

    # ---- running

    def run(self) -> None:
        with (
            patch.object(retain, "ChunkChain", BlockingChain),
            patch.object(effects, "ChunkChain", BlockingChain),
            patch.object(topic_file_lists, "ChunkChain", BlockingChain),
            patch.object(unreferenced_uploads, "ChunkChain", BlockingChain),
            patch.object(topic_file_lists, "file_entry", file_entry),
        ):
            try:
                super().run()
            finally:
                for loop in self.loops:
                    loop.abandon()

    def play(self) -> None:
        world = self.world
        world.run_until(self.horizon)
        self.faults.end()
        if self.deleting.drawn:
            return self._play_deletion()
        self._until(self.waiting, 500 * MS)
        self.pausing.end()
        self._recover()
        world.run_until(world.now + LATE_SPLIT_WINDOW)
        self._until(self._has_more_than_minimum, SECOND)
        before = self._layout().next_number
        world.run_until(world.now + QUIET_TIME)
        for segment in {s.name: s for _, layout in self.checker.layouts for s in layout.segments}.values():
            if segment.number >= before and segment.opened_because is not Reason.ROLL:
                words = f"it was made at rest: {segment.opened_because.value}"
                self.checker.must([Violation(13, segment.name, words)])
        if self.file_lists.drawn:
            self._until(self.checker.file_lists.waiting, SECOND)
        if self.limits.on:
            self._until(lambda: self.checker.retained.waiting(self.topic.spec, world.now), SECOND)
            if self.orphan_scenario.drawn:
                self._until(self.orphan_scenario.waiting, SECOND)
                self._until(self.checker.file_lists.orphaned, SECOND)
            self.readers.append(SimulatedReader(self, "late", {}, 500 * MS, []))
        self.recover_uploads()
        self._wake()
        self._until(self.waiting, 500 * MS)
        check_all(self)
        self._must_have_grown()

    def recover_uploads(self) -> None:
        """Nothing is published by reference."""

    def _play_deletion(self) -> None:
        self._until(self.deleting.waiting, SECOND)
        self.world.run_until(self.world.now + QUIET_TIME)
        self.checker.must(inv.unfinished(self.deleting.waiting()))
        self.deleting.check()

    def _until(self, waiting: Callable[[], dict[str, str]], step: int) -> None:
        deadline = self.world.now + RECOVERY_TIME
        while left := waiting():
            if self.world.now >= deadline:
                self.checker.must(inv.unfinished(left))
            self.world.run_until(self.world.now + step)

    def _recover(self) -> None:
        """Pauses the clients after the load. The other processes poll less often, only to save time."""
        self.tick = SECOND
        self.leader_pause = 300 * MS, 500 * MS
        for client in (*self.producers, *self.readers, *self.members):
            client.process.pause()

    def _wake(self) -> None:
        for client in (*self.producers, *self.readers, *self.members):
            client.process.resume()

    def _has_more_than_minimum(self) -> dict[str, str]:
        """A description of everything that has not shrunk to its minimum yet."""
        layout, spec = self._layout(), self.topic.spec
        waiting: dict[str, str] = {}
        if any(s.successors or s.phase.value != "open" for s in layout.segments):
            waiting["layout"] = "it is being changed"
        elif len(unchanged_segments(layout)) != spec.min_segments:
            waiting["layout"] = f"{len(unchanged_segments(layout))} segments are left, not {spec.min_segments}"
        here = [b for a, b in self.brokers.items() if b.process.alive and a in self.deployment.slots and not b.leaving]
        if not len(here) == len(self.brokers) == self.deployment.wanted == self.least_brokers:
            waiting["brokers"] = f"{len(self.brokers)} run, {self.deployment.wanted} are wanted"
        wanted = 1 if spec.durability is Durability.STORED else min(spec.replicas, self.least_brokers)
        known = {b.incarnation for b in here}
        for segment in layout.segments:
            if len(segment.replicas) != wanted or not {r.incarnation for r in segment.replicas} <= known:
                waiting[segment.name] = f"its replicas are {[r.incarnation for r in segment.replicas]}"
        return waiting

    def _must_have_grown(self) -> None:
        """Without faults, a load that stays above the target must lead to more segments. References are no load."""
        spec, faults = self.topic.spec, self.faults
        assert isinstance(faults, ElasticFaultSchedule)
        if (
            not faults.none
            or self.pausing.drawn
            or self.references is not None
            or spec.max_segments == spec.min_segments
        ):
            return
        long = spec.split_after / SECOND + 5
        line = 1.6 * loads.TARGET * spec.min_segments
        above = [t for t in range(int(self.load.seconds)) if self.load.offered(t) > line]
        runs = [t for t in above if all(x in above for x in range(t, int(t + long)))]
        most = max(len(unchanged_segments(layout)) for _, layout in self.checker.layouts)
        if runs and most == spec.min_segments:
            self.checker.must([Violation(13, "layout", f"above the target since {runs[0]} s, and never split")])

    def _layout(self) -> Layout:
        layout = self.store.truth(LAYOUT)
        assert isinstance(layout, Layout)
        return layout

    # ---- brokers come and go

    def any_broker(self) -> str:
        """The address of a broker that exists; if there is none, of one that is desired."""
        return self.world.random.choice(list(self.brokers) or self.deployment.slots)

    def start_broker(self, address: str, name: str | None = None) -> None:
        if address in self.deployment.slots:
            super().start_broker(address, name)

    def kill_broker(self, broker: SimulatedBroker, *, gone: bool = False) -> None:
        super().kill_broker(broker, gone=gone or broker.address not in self.deployment.slots)

    def broker_died(self, broker: SimulatedBroker) -> None:
        self.deployment.died(broker)


@contextmanager
def shortened_waits() -> Iterator[None]:
    """Replaces the policy's waits by ``SHORTENED_WAITS``."""
    before = [getattr(module, name) for module, name, _ in SHORTENED_WAITS]
    for module, name, value in SHORTENED_WAITS:
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name, _), value in zip(SHORTENED_WAITS, before, strict=True):
            setattr(module, name, value)


def run(seed: int) -> HistoryFailure | None:
    """Runs the history of a seed."""
    with shortened_waits():
        return run_history(seed, ElasticHistory, f"PYTHONPATH=tests python -m simulation.picture {seed} history.svg")
