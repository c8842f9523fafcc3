"""A simulated broker process: what it holds, the calls it answers, its reports, its way out.

A restart is another Broker, empty, with a new incarnation, at the same address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from smq_core.errors import NotHeld, Unavailable, WrongIncarnation
from smq_core.load import Counters
from smq_core.model import Segment
from smq_core.replica import State
from support.sim.chain import LAYOUT, Chain
from support.sim.holding import Holding
from support.sim.network import Stream
from support.sim.replication import ReplicaServer
from support.sim.world import MS, SECOND, Process, Steps

if TYPE_CHECKING:
    from support.sim.history import History

TICK = 200 * MS


class BrokerLoad(NamedTuple):
    """What a broker reports of its load: each primary's counters, and how full its memory is.

    ``begun`` are the segments that wait for no predecessor (any more).
    """

    segments: dict[str, Counters]
    memory: float
    begun: frozenset[str]


class Broker:
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
        self.holdings: dict[str, Holding] = {}
        self.tombs: set[str] = set()
        self.leaving = False
        self.takes_producers = True
        self._leader_heard_at = self.world.now
        self._layout: tuple[Any, int] = (None, -SECOND)
        self._leaders = history.leader_addresses
        self.network.listening[address] = self.process
        self.process.start(self._tick())
        self.process.start(self._report())

    def clock(self) -> int:
        """This process's own clock, which may jump."""
        return self.world.now + self.skew

    def primaries_room(self) -> int:
        used = sum(h.machine.tail_bytes for h in self.holdings.values() if h.machine.config.is_primary)
        return self.settings.primary_budget - used

    # ---- commands

    def on_open(self, segment: Segment, incarnation: str) -> Steps:
        """Once per incarnation: what was ever held or promised away is never opened again."""
        self._must_be(incarnation)
        if segment.name in self.tombs:
            raise NotHeld(f"{segment.name} is never opened here")
        if segment.name not in self.holdings:
            self.holdings[segment.name] = holding = Holding(self, segment)
            self.checker.opened(holding)
            self.world.tell(self.process.name, segment.name, f"opened: {holding.machine.state}")
            holding.start()
        return self.settings.credit
        yield

    def on_seal(self, segment: str, incarnation: str) -> Steps:
        self._must_be(incarnation)
        holding = self.holdings.get(segment)
        if holding is None:
            self.tombs.add(segment)
            raise NotHeld(f"{segment} is not held here and never will be")
        outcome = holding.machine.outcome or (yield holding.seal())
        self.checker.told(outcome, self.process.name)
        return outcome

    def on_flush(self, segment: str, incarnation: str) -> Steps:
        self._must_be(incarnation)
        if segment in self.holdings:
            self.holdings[segment].pump(flush=True)
        return None
        yield

    def on_outcome(self, segment: str) -> Steps:
        """From memory, or from the chain: any broker answers for any segment."""
        holding = self.holdings.get(segment)
        outcome = holding.machine.outcome if holding is not None else None
        if outcome is None:
            outcome = yield from Chain(self.store, self.process, segment).find_seal()
        if outcome is None:
            raise Unavailable(f"{segment} is not sealed yet")
        self.checker.told(outcome, self.process.name)
        return outcome

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
        return self._held(segment).read_tail(offset)
        yield

    def on_status(self, incarnation: str) -> Steps:
        self._must_be(incarnation)
        return True
        yield

    # ---- streams

    def on_produce(self, stream: Stream, segment: str, incarnation: str, producer: str, epoch: int) -> None:
        self._must_be(incarnation)
        holding = self._held(segment)
        if not self.takes_producers:
            raise Unavailable("this broker is leaving")
        holding.take_producer(stream, producer, epoch)

    def on_replica(self, stream: Stream, segment: str, incarnation: str, primary: str) -> None:
        self._must_be(incarnation)
        ReplicaServer(self._held(segment), stream)

    # ---- on its own

    def leave(self) -> None:
        """SIGTERM."""
        self.leaving = True
        self._leader_heard_at = self.world.now
        self.world.tell(self.process.name, "", "SIGTERM: leaving")

    def _tick(self) -> Steps:
        count = 0
        while True:
            tick = self.history.tick
            yield self.world.between(tick * 3 // 4, tick * 5 // 4)
            count += tick // TICK
            for holding in list(self.holdings.values()):
                holding.tick()
                if count >= 5:
                    holding.heartbeat()
            count %= 5
            if self.leaving and self.world.now - self._leader_heard_at > 5 * SECOND:
                self._leave_alone()

    def _leave_alone(self) -> None:
        """No leader: take nothing more, write what was acked, exit."""
        self.takes_producers = False
        unflushed = False
        for holding in self.holdings.values():
            machine = holding.machine
            if not machine.config.is_primary or machine.state is State.SEALED:
                continue
            for stream in list(holding.streams):
                stream.close()
            holding.pump(flush=True)
            unflushed = unflushed or machine.chain_end < machine.watermark or machine.state is State.FENCED
        if not unflushed:
            self._exit()

    def _exit(self) -> None:
        self.world.tell(self.process.name, "", "exits")
        self.history.kill_broker(self)

    def _report(self) -> Steps:
        while True:
            watermarks = {n: h.machine.watermark for n, h in self.holdings.items() if h.machine.config.is_primary}
            silent = {  # as a dict: a set's order would differ from process to process
                link.follower.incarnation: None
                for h in self.holdings.values()
                if h.machine.state is State.OPEN
                for link in h.links
                if link.silent
            }
            held = sum(h.machine.state is not State.SEALED for h in self.holdings.values())
            load = self.history.load_of(self)
            report = (self.name, self.incarnation, self.address, self.leaving, held, watermarks, silent, load)
            for leader in self._leaders:
                self.network.call(self.process, leader, "report", report, timeout=SECOND).then(self._answered)
            yield self.world.between(900 * MS, 1100 * MS)

    def counters(self) -> dict[str, Counters]:
        """What each primary here has taken in."""
        return {
            name: Counters(
                holding.machine.counters.messages,
                holding.machine.counters.bytes,
                holding.machine.counters.batches,
                tuple(holding.histogram),
            )
            for name, holding in self.holdings.items()
            if holding.machine.config.is_primary and holding.machine.state is not State.SEALED
        }

    def begun(self) -> frozenset[str]:
        held = self.holdings.items()
        return frozenset(n for n, h in held if h.machine.state not in (State.SEALED, State.WAITING))

    def memory_share(self) -> float:
        """How full its memory for its own segments is."""
        return 1 - self.primaries_room() / self.settings.primary_budget

    def _answered(self, answer: Any) -> None:
        if answer.error is None and self.process.alive and not self.process.paused:
            self._leader_heard_at = self.world.now
            may_leave, named = answer.value
            if may_leave and self.leaving:
                self.checker.may_leave(self)
                self._exit()
                return
            for name, holding in self.holdings.items():
                # A segment that the leader no longer names was sealed by somebody, or this leader is behind.
                if named is not None and name not in named and holding.machine.state is not State.SEALED:
                    holding.look_for_seal()

    def _must_be(self, incarnation: str) -> None:
        if incarnation != self.incarnation:
            raise WrongIncarnation(f"this is {self.incarnation}, not {incarnation}")

    def _held(self, segment: str) -> Holding:
        holding = self.holdings.get(segment)
        if holding is None:
            raise NotHeld(f"{segment} is not held by {self.incarnation}")
        return holding
