"""One history: a world made from a seed, faults for a while, then a time without faults until everything is done.

``run(seed)`` returns None, or the failure with its story. The same seed gives the same history; print its story with
``PYTHONPATH=tests python -m support.sim.histories protocol SEED``. ``elastic.ElasticHistory`` varies the load.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from random import Random
from typing import Any

from smq_core import invariants as inv
from smq_core.model.entities import Column, Durability, Topic, TopicSpec
from smq_core.model.keyspace import Partitioner
from support.sim.brokers.broker import TICK, SimulatedBroker
from support.sim.brokers.shells import broker_shells
from support.sim.checks.end_state import check_all, waiting_for
from support.sim.checks.protocol_checker import InvariantViolated, ProtocolChecker
from support.sim.clients.group_member import SimulatedMember
from support.sim.clients.kafka_producer import SimulatedKafkaProducer
from support.sim.clients.large_values import LargeValueScenario
from support.sim.clients.messages import HistorySettings
from support.sim.clients.producer import SimulatedProducer
from support.sim.clients.reader import SimulatedReader
from support.sim.clients.uploads import ReferenceScenario
from support.sim.engine.network import SimulatedNetwork
from support.sim.engine.termination_proofs import Supervisor
from support.sim.engine.world import MS, SECOND, Process, World
from support.sim.filer.chunk_chain import LAYOUT
from support.sim.filer.object_store import SimulatedStore
from support.sim.histories.faults import FaultSchedule
from support.sim.histories.file_list_scenario import FileListScenario
from support.sim.histories.journal_scenario import JOURNAL_STATES, JournalScenario
from support.sim.histories.producer_scenario import ProducerScenario
from support.sim.leaders.protocol_leader import SimulatedLeader

RECOVERY_TIME = 120 * SECOND
# The first words of log lines whose errors are a fault of a broker.
BROKER_LOGS = ("thread", "segment", "flush", "seal", "seal_watcher", "file_list")


@dataclass(frozen=True, slots=True)
class HistoryFailure:
    """The failure of a seed. ``story`` has the events that concern the violation's subject."""

    seed: int
    what: str
    story: str
    again: str = ""
    """The command that shows more than the story, if there is one."""

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.what}\n\n{self.story}\n\nseed {self.seed}: {self.what}\n{self.again}"


class History:
    """``tick`` is the interval of the brokers' work on segments, ``leader_pause`` the range of the leaders' pauses."""

    tick = TICK
    leader_pause = 80 * MS, 160 * MS
    checker_kind = ProtocolChecker
    producers_are_forgotten = False
    """Whether each history has what makes segments forget producers."""
    journal_share = 0.5
    """The share of histories that have journals."""
    journal_states = JOURNAL_STATES
    durabilities: tuple[Durability, ...] = (Durability.REPLICATED,) * 3 + (Durability.STORED,)
    columns: tuple[Column, ...] = ()
    """Version 0 of the topic's schema, if it has one."""
    flush_intervals: tuple[int, ...] = (300 * MS, 2 * SECOND, 4 * SECOND)
    flush_max_interval: int | None = None
    with_references = False
    """Whether producers publish by reference."""
    references: ReferenceScenario | None = None
    large_values: LargeValueScenario | None = None
    """Beside references, because the same collectors delete both."""
    faults: FaultSchedule
    settings: HistorySettings
    topic: Topic
    leader_addresses: list[str]
    groups: list[str]
    horizon: int
    keys: int
    send_interval: int

    def __init__(self, seed: int) -> None:
        self.world = world = World(seed)
        self.network = SimulatedNetwork(world)
        self.store = SimulatedStore(world, self.network)
        self.checker = self.checker_kind(world, self.store)
        self.supervisor = Supervisor(world, self.network)
        self.brokers: dict[str, SimulatedBroker] = {}
        self.leaders: dict[str, SimulatedLeader] = {}
        self.producers: list[SimulatedProducer] = []
        self.kafka_producers: list[SimulatedKafkaProducer] = []
        self.readers: list[SimulatedReader] = []
        self.members: list[SimulatedMember] = []
        self._broker_names: dict[str, str] = {}
        self.producer_scenario = ProducerScenario(seed, forgets=self.producers_are_forgotten)
        self.file_lists = FileListScenario(seed, self.has_file_lists())
        self.journals = JournalScenario(seed, self.journal_share, self.journal_states)
        self.checker.losses.journals = self.journals
        if self.with_references:
            self.references = self.make_references()
            self.large_values = LargeValueScenario(self) if self.references is not None else None
        self.draw(world.random)
        self.producer_scenario.begin(self)
        self.journals.begin(self)
        self.file_lists.begin(self)

    def make_references(self) -> ReferenceScenario | None:
        """What is published by reference."""
        return ReferenceScenario(self)

    def make_member(self, group: str, name: str) -> SimulatedMember:
        return SimulatedMember(self, group, name)

    def has_file_lists(self) -> bool:
        """Whether the leaders of this kind of history name file lists."""
        return False

    def draw(self, dice: Random) -> None:
        """Draws the settings of the history, and starts the processes."""
        self.settings = HistorySettings(
            partitions=dice.choice([2, 4, 8]),
            credit=dice.choice([1000, 3000]),
            primary_budget=dice.choice([1200, 6000]),
            flush_bytes=dice.choice([600, 2000]),
            flush_interval=dice.choice(self.flush_intervals),
            flush_max_interval=self.flush_max_interval,
            limits=self.producer_scenario.limits,
        )
        self.horizon = dice.randint(4, 12) * SECOND
        self.keys = dice.choice([2, 6])
        self.send_interval = dice.choice([100 * MS, 400 * MS])
        self.topic = Topic(
            "default/t",
            "uid",
            TopicSpec(
                partitions=self.settings.partitions,
                partitioner=Partitioner.KAFKA,
                durability=dice.choice(self.durabilities),
                replicas=dice.choice([2, 2, 3]),
                min_segments=dice.choice([1, 2]),
                schema=self.columns,
            ),
        )
        self.leader_addresses = ["leader-0", "leader-1"][: dice.choice([1, 2, 2])]
        self.groups = ["g"]
        for i in range(dice.randint(3, 5)):
            self.start_broker(f"broker-{i}", f"b{i}")
        for address in self.leader_addresses:
            self.start_leader(address)
        for i in range(dice.randint(2, 3)):
            self.producers.append(self.make_producer(f"p{i}", 0, dice.randint(8, 30)))
        for i in range(dice.randint(1, 2)):
            self.readers.append(SimulatedReader(self, f"r{i}", {}, dice.choice([200, 600]) * MS, []))
        for i in range(dice.choice([0, 0, 1, 2])):
            self.members.append(self.make_member("g", f"m{i}"))
        if not self.members:
            self.groups = []
        self.faults = FaultSchedule(self)

    # ---- running

    def run(self) -> None:
        """Raises InvariantViolated, or an unexpected error of the code that is under test."""
        with broker_shells(self):
            try:
                self.play()
            finally:
                self.world.close()

    def log(self, who: str, event: MutableMapping[str, Any]) -> None:
        """Adds a log line of the product's code to the story. An unexpected error of a broker fails the history."""
        words = " ".join(f"{key}={value}" for key, value in event.items() if key not in ("event", "exc_info"))
        self.world.note(who, str(event.get("segment", "")), f"{event['event']} {words}")
        error = sys.exc_info()[1]
        if error is not None and "exc_info" in event and event["event"].partition(".")[0] in BROKER_LOGS:
            self.world.fail(error)

    def play(self) -> None:
        world = self.world
        world.run_until(self.horizon)
        self.faults.end()
        self.finish()

    def finish(self) -> None:
        """Runs until nothing is in progress, and checks everything."""
        world = self.world
        deadline = world.now + RECOVERY_TIME
        while waiting := self.waiting():
            if world.now >= deadline:
                self.checker.must(inv.unfinished(waiting))
            world.run_until(world.now + 500 * MS)
        check_all(self)

    def waiting(self) -> dict[str, str]:
        """What has not finished yet: subject -> words."""
        return waiting_for(self)

    # ---- processes

    def processes(self) -> Iterable[Process]:
        yield from (b.process for b in self.brokers.values())
        yield from (x.process for x in self.leaders.values())
        yield from (x.process for x in (*self.producers, *self.kafka_producers, *self.readers, *self.members))

    def any_broker(self) -> str:
        return self.world.random.choice(list(self.brokers))

    def leader_for(self, member: str) -> str:
        """Usually the holder of the Lease. Sometimes a member still has another leader's address."""
        alive = [a for a in self.leader_addresses if self.leaders[a].process.alive]
        if not alive or (not self.faults.over and self.world.chance(0.05)):
            return self.world.random.choice(self.leader_addresses)
        return alive[0]

    # ---- actions of faults

    def start_broker(self, address: str, name: str | None = None) -> None:
        running = self.brokers.get(address)
        if running is not None and running.process.alive:
            return
        name = name or self._broker_names[address]
        self._broker_names[address] = name
        self.brokers[address] = SimulatedBroker(self, address, name)

    def kill_broker(self, broker: SimulatedBroker, *, gone: bool = False) -> None:
        """Kills the process; with ``gone`` nothing is left of its Pod."""
        if broker.process.alive:
            broker.process.kill()
            self.world.note("!", "", f"{broker.incarnation} is dead")
            self.journals.ended(broker)
            self.broker_died(broker)
        if gone:
            self.journals.lose_disk(broker)

    def broker_died(self, broker: SimulatedBroker) -> None:
        """The broker was killed, or has exited. Another process replaces it."""
        self.world.after(self.world.between(SECOND, 8 * SECOND), lambda: self.start_broker(broker.address))

    def start_leader(self, address: str) -> None:
        if address not in self.leaders or not self.leaders[address].process.alive:
            self.leaders[address] = self.make_leader(address)

    def load_of(self, broker: SimulatedBroker) -> Any:
        """The load that this broker reports, or None if nothing depends on it."""
        return None

    def finish_story(self) -> None:
        """Adds to the story of a failed history what its processes noted elsewhere."""

    def make_leader(self, address: str) -> SimulatedLeader:
        return SimulatedLeader(self, address)

    def next_epoch(self, old: SimulatedProducer, *, crash: bool) -> None:
        """Restarts the producer, while its former process is dead or continues as a zombie."""
        newest = self._newest(old)
        if newest is None:
            return
        left = newest.batches
        self.world.note("!", "", f"{newest.name} {'crashes' if crash else 'becomes a zombie'}")
        if crash:
            newest.process.kill()
        else:
            newest.batches = left // 2
        epoch, run = (None, f"c{len(self.producers)}") if newest.claims else (newest.epoch + 1, "")
        self.producers.append(self.make_producer(newest.producer, epoch, left - left // 2, run))

    def clash(self, old: SimulatedProducer) -> None:
        """Starts a second process with the same id and epoch, which claims nothing."""
        newest = self._newest(old)
        if newest is None or newest.claims:
            return
        left, run = newest.batches, f"x{len(self.producers)}"
        self.world.note("!", "", f"another process has the id and epoch of {newest.name}")
        newest.batches = left // 2
        self.producers.append(self.make_producer(newest.producer, newest.epoch, left - left // 2, run))

    def _newest(self, old: SimulatedProducer) -> SimulatedProducer | None:
        """The newest process of that producer, if it still writes."""
        newest = max((p for p in self.producers if p.producer == old.producer), key=lambda p: p.epoch)
        return newest if newest.process.alive and not newest.stopped else None

    def make_producer(self, name: str, epoch: int | None, batches: int, run: str = "") -> SimulatedProducer:
        return SimulatedProducer(self, name, epoch, batches, run)

    def restart_reader(self, at: int) -> None:
        old = self.readers[at]
        self.world.note("!", "", f"{old.name} starts again from its checkpoint")
        old.process.kill()
        new = SimulatedReader(self, old.name, old.checkpoint, old.poll_interval, old.rows[: old.kept])
        new.reader.losses.extend(old.reader.losses)
        self.readers[at] = new

    def restart_member(self, at: int) -> None:
        old = self.members[at]
        if old.process.alive:
            self.world.note("!", "", f"{old.process.name} starts again")
            old.process.kill()
            self.members.append(self.make_member(old.group, old.name))

    def restart_all(self) -> None:
        """Restarts all brokers and one leader, the holder of the Lease.

        The holder is restarted too if another leader has changed the layout since.
        """
        for address in list(self.brokers):
            self.start_broker(address)
        holder, *others = self.world.random.sample(self.leader_addresses, len(self.leader_addresses))
        for address in others:
            self.leaders[address].process.kill()
        known, truth = self.leaders[holder].machine.layout, self.store.truth(LAYOUT)
        if known is not None and truth is not None and known.version < truth.version:
            self.leaders[holder].process.kill()
        self.start_leader(holder)


def run(seed: int, kind: type[History] = History, again: str = "") -> HistoryFailure | None:
    """Runs the history of a seed."""
    history = None
    try:
        history = kind(seed)
        history.run()
    except InvariantViolated as broken:
        assert history is not None
        return HistoryFailure(seed, str(broken.violation), _story(history, broken.violation.subject), again)
    except Exception:
        narrative = _story(history, "") if history is not None else ""
        return HistoryFailure(seed, traceback.format_exc(), narrative, again)
    return None


def _story(history: History, subject: str) -> str:
    """The events of segments that share partitions with the subject, and the faults.

    If the subject is not a segment, the story has all events.
    """
    history.finish_story()
    ranges = history.checker.ranges
    related = {n for n, r in ranges.items() if subject in ranges and r.overlaps(ranges[subject])}
    return history.world.story.about(related)
