"""One history: a world made from a seed, faults for a while, then peace until everything has come to its end.

``run(seed)`` returns None, or the failure with its story. ``PYTHONPATH=tests python -m support.sim.history SEED`` tells
one; the same seed is the same history. ``elastic.ElasticHistory`` has a load that comes and goes besides.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

from smq_core import invariants as inv
from smq_core.model import Durability, Topic, TopicSpec
from support.sim.broker import TICK, Broker
from support.sim.chain import LAYOUT
from support.sim.checker import Broken, Checker
from support.sim.faults import Faults
from support.sim.final import check_all, waiting_for
from support.sim.leader import Leader
from support.sim.member import Member
from support.sim.messages import Settings
from support.sim.network import Network
from support.sim.producer import Producer
from support.sim.reader import ReaderNode
from support.sim.store import Store
from support.sim.supervisor import Supervisor
from support.sim.world import MS, SECOND, Process, World

PEACE = 120 * SECOND


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong with a seed. ``story`` is about what the violation is about."""

    seed: int
    what: str
    story: str
    again: str = ""
    """What to type to see it, when there is more than the story."""

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.what}\n\n{self.story}\n\nseed {self.seed}: {self.what}\n{self.again}"


class History:
    """``tick`` is how often brokers look after their segments, ``leader_pause`` (least, most) how long leaders rest."""

    tick = TICK
    leader_pause = 80 * MS, 160 * MS
    checker_kind = Checker
    faults: Faults
    settings: Settings
    topic: Topic
    leader_addresses: list[str]
    groups: list[str]
    horizon: int
    keys: int
    pace: int

    def __init__(self, seed: int) -> None:
        self.world = world = World(seed)
        self.network = Network(world)
        self.store = Store(world, self.network)
        self.checker = self.checker_kind(world, self.store)
        self.supervisor = Supervisor(world, self.network)
        self.brokers: dict[str, Broker] = {}
        self.leaders: dict[str, Leader] = {}
        self.producers: list[Producer] = []
        self.readers: list[ReaderNode] = []
        self.members: list[Member] = []
        self._broker_names: dict[str, str] = {}
        self.draw(world.random)

    def draw(self, dice: Random) -> None:
        """Decides everything that is decided before it begins, and starts the processes."""
        self.settings = Settings(
            partitions=dice.choice([2, 4, 8]),
            credit=dice.choice([1000, 3000]),
            primary_budget=dice.choice([1200, 6000]),
            flush_bytes=dice.choice([600, 2000]),
            flush_interval=dice.choice([300 * MS, 2 * SECOND, 4 * SECOND]),
            patience=dice.choice([2, 5]) * SECOND,
        )
        self.horizon = dice.randint(4, 12) * SECOND
        self.keys = dice.choice([2, 6])
        self.pace = dice.choice([100 * MS, 400 * MS])
        self.topic = Topic(
            "default/t",
            "uid",
            TopicSpec(
                partitions=self.settings.partitions,
                durability=dice.choice([Durability.REPLICATED] * 3 + [Durability.STORED]),
                replicas=dice.choice([2, 2, 3]),
                min_segments=dice.choice([1, 2]),
            ),
        )
        self.leader_addresses = ["leader-0", "leader-1"][: dice.choice([1, 2, 2])]
        self.groups = ["g"]
        for i in range(dice.randint(3, 5)):
            self.start_broker(f"broker-{i}", f"b{i}")
        for address in self.leader_addresses:
            self.start_leader(address)
        for i in range(dice.randint(2, 3)):
            self.producers.append(Producer(self, f"p{i}", 0, dice.randint(8, 30)))
        for i in range(dice.randint(1, 2)):
            self.readers.append(ReaderNode(self, f"r{i}", {}, dice.choice([200, 600]) * MS, []))
        for i in range(dice.choice([0, 0, 1, 2])):
            self.members.append(Member(self, "g", f"m{i}"))
        if not self.members:
            self.groups = []
        self.faults = Faults(self)

    # ---- running

    def run(self) -> None:
        """Raises Broken, or whatever a machine raised that it should not."""
        world = self.world
        world.run_until(self.horizon)
        self.faults.end()
        deadline = world.now + PEACE
        while waiting := waiting_for(self):
            if world.now >= deadline:
                self.checker.must(inv.unfinished(waiting))
            world.run_until(world.now + 500 * MS)
        check_all(self)

    # ---- who is there

    def processes(self) -> Iterable[Process]:
        yield from (b.process for b in self.brokers.values())
        yield from (x.process for x in self.leaders.values())
        yield from (x.process for x in (*self.producers, *self.readers, *self.members))

    def any_broker(self) -> str:
        return self.world.random.choice(list(self.brokers))

    def leader_for(self, member: str) -> str:
        """Mostly the one with the Lease; now and then a member still knows another one."""
        alive = [a for a in self.leader_addresses if self.leaders[a].process.alive]
        if not alive or (not self.faults.over and self.world.chance(0.05)):
            return self.world.random.choice(self.leader_addresses)
        return alive[0]

    # ---- what faults do

    def start_broker(self, address: str, name: str | None = None) -> None:
        running = self.brokers.get(address)
        if running is not None and running.process.alive:
            return
        name = name or self._broker_names[address]
        self._broker_names[address] = name
        self.brokers[address] = Broker(self, address, name)

    def kill_broker(self, broker: Broker) -> None:
        if broker.process.alive:
            broker.process.kill()
            self.broker_died(broker)

    def broker_died(self, broker: Broker) -> None:
        """Killed, or gone by itself."""
        self.world.tell("!", "", f"{broker.incarnation} is dead")
        self.supervisor.died(broker.incarnation)
        self.world.after(self.world.between(SECOND, 8 * SECOND), lambda: self.start_broker(broker.address))

    def start_leader(self, address: str) -> None:
        if address not in self.leaders or not self.leaders[address].process.alive:
            self.leaders[address] = self.make_leader(address)

    def load_of(self, broker: Broker) -> Any:
        """What this broker reports of its load; nothing, when nothing depends on it."""
        return None

    def make_leader(self, address: str) -> Leader:
        return Leader(self, address)

    def next_epoch(self, old: Producer, *, crash: bool) -> None:
        """The producer starts again, while its former life is dead or goes on as a zombie."""
        newest = max((p for p in self.producers if p.producer == old.producer), key=lambda p: p.epoch)
        if not newest.process.alive or newest.stopped:
            return
        left = newest.batches
        self.world.tell("!", "", f"{newest.name} {'crashes' if crash else 'becomes a zombie'}")
        if crash:
            newest.process.kill()
        else:
            newest.batches = left // 2
            newest.zombie = True
        self.producers.append(self.make_producer(newest.producer, newest.epoch + 1, left - left // 2))

    def make_producer(self, name: str, epoch: int, batches: int) -> Producer:
        return Producer(self, name, epoch, batches)

    def restart_reader(self, at: int) -> None:
        old = self.readers[at]
        self.world.tell("!", "", f"{old.name} starts again from its checkpoint")
        old.process.kill()
        new = ReaderNode(self, old.name, old.checkpoint, old.pace, old.rows[: old.kept])
        new.reader.losses.extend(old.reader.losses)
        self.readers[at] = new

    def restart_member(self, at: int) -> None:
        old = self.members[at]
        if old.process.alive:
            self.world.tell("!", "", f"{old.process.name} starts again")
            old.process.kill()
            self.members.append(Member(self, old.group, old.name))

    def restart_all(self) -> None:
        """All brokers, and one leader: the one with the Lease, which begins anew if another one led meanwhile."""
        for address in list(self.brokers):
            self.start_broker(address)
        holder, *others = self.world.random.sample(self.leader_addresses, len(self.leader_addresses))
        for address in others:
            self.leaders[address].process.kill()
        known, truth = self.leaders[holder].machine.layout, self.store.truth(LAYOUT)
        if known is not None and truth is not None and known.version < truth.version:
            self.leaders[holder].process.kill()
        self.start_leader(holder)


def run(seed: int, kind: type[History] = History, again: str = "") -> Failure | None:
    """One history from its seed."""
    history = None
    try:
        history = kind(seed)
        history.run()
    except Broken as broken:
        assert history is not None
        return Failure(seed, str(broken.violation), _story(history, broken.violation.subject), again)
    except Exception:
        told = _story(history, "") if history is not None else ""
        return Failure(seed, traceback.format_exc(), told, again)
    return None


def _story(history: History, subject: str) -> str:
    """The segments that share partitions with the subject, and the faults; everything when it is something else."""
    ranges = history.checker.ranges
    related = {n for n, r in ranges.items() if subject in ranges and r.overlaps(ranges[subject])}
    return history.world.story.about(related)


if __name__ == "__main__":
    failure = run(int(sys.argv[1]))
    print(failure or "all invariants hold")
    sys.exit(failure is not None)
