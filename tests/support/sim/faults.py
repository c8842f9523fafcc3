"""What goes wrong in a history: a few kinds of faults, chosen by the seed, each a number of times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from smq_core.decide import Request
from smq_core.leading import accepting
from smq_core.replica import State
from support.sim.store import HOST as FILER
from support.sim.supervisor import HOST as API
from support.sim.world import MS, SECOND, Process

if TYPE_CHECKING:
    from support.sim.history import History
    from support.sim.leader import Leader


class Faults:
    """Schedules the faults of one history. ``end`` undoes all that lasts. ``requests``: what people ask for."""

    requests = ("split", "merge", "roll", "move")

    def __init__(self, history: History) -> None:
        self.history = history
        self.world = history.world
        self.over = False
        dice = self.world.random
        kinds: list[tuple[Callable[[], None], int]] = [
            (self.kill_broker, 3),
            (self.kill_two, 1),
            (self.kill_one_pause_another, 2),
            (self.pause_primary, 2),
            (self.pause_broker, 3),
            (self.cut, 5),
            (self.kill_leader, 3),
            (self.pause_leader, 2),
            (self.filer_away, 1),
            (self.terminate_broker, 2),
            (self.reuse_address, 1),
            (self.jump_clock, 2),
            (self.crash_producer, 1),
            (self.zombie_producer, 1),
            (self.pause_producer, 2),
            (self.restart_reader, 2),
            (self.pause_reader, 1),
            (self.restart_member, 1),
        ]
        self._store_faults()
        network = history.network
        network.slow = dice.choice([0.0, 0.0, 0.01, 0.05])
        network.repeat = dice.choice([0.0, 0.05, 0.2])
        network.hole = dice.choice([0.0, 0.0, 0.0, 0.02])
        chosen = dice.sample(kinds, dice.randint(0, 5))
        self.kinds = [kind.__name__ for kind, _ in chosen]
        for kind, often in chosen:
            for _ in range(dice.randint(1, often)):
                self.world.after(self.world.between(0, history.horizon), lambda kind=kind: self._do(kind))
        for _ in range(dice.randint(0, 6)):
            self.world.after(self.world.between(SECOND, history.horizon), lambda: self._do(self.request))

    def _store_faults(self) -> None:
        dice, faults = self.world.random, self.history.store.faults
        self.history.store.pace = dice.choice([1, 1, 1, 10, 30])
        rate = dice.choice([0.0, 0.0, 0.05, 0.2])
        for name in ("lost_answer", "late", "refused", "false_conflict", "stale_get", "failed_get"):
            if dice.random() < 0.5:
                setattr(faults, name, rate * dice.random())

    def soon(self, delay: int, kind: Callable[[], object]) -> None:
        """One more fault, unless they are over by then: nobody would start again what it ends."""
        self.world.after(delay, lambda: self._do(kind))

    def end(self) -> None:
        """Everything works from now on; what is dead is started again."""
        self.over = True
        history = self.history
        history.network.cuts.clear()
        history.network.slow = history.network.repeat = history.network.hole = 0.0
        faults = history.store.faults
        history.store.pace = 1
        faults.away = False
        faults.lost_answer = faults.late = faults.refused = faults.false_conflict = 0.0
        faults.stale_get = faults.failed_get = 0.0
        for process in list(history.processes()):
            if process.paused:
                process.resume()
        history.restart_all()
        self._tell("faults end")

    # ---- kinds

    def kill_broker(self) -> None:
        if not self.history.brokers:
            return  # all have left, and the next ones are about to start
        broker = self.world.random.choice(list(self.history.brokers.values()))
        self._tell(f"kill {broker.incarnation}")
        self.history.kill_broker(broker)
        self._later(self.world.between(300 * MS, 6 * SECOND), lambda: self.history.start_broker(broker.address))

    def kill_two(self) -> None:
        self.kill_broker()
        self._later(self.world.between(0, SECOND), self.kill_broker)

    def kill_one_pause_another(self) -> None:
        """Of the same segment: what remains can only be found when the paused one answers again."""
        held = [h for b in self.history.brokers.values() for h in b.holdings.values() if h.machine.state is State.OPEN]
        if held:
            holding = self.world.random.choice(held)
            names = {r.incarnation for r in holding.segment.replicas} - {holding.broker.incarnation}
            self._tell(f"kill {holding.process.name}, pause another replica of {holding.name}")
            for broker in self.history.brokers.values():
                if broker.incarnation in names:
                    self._pause(broker.process, 12 * SECOND)
                    break
            self.history.kill_broker(holding.broker)

    def pause_primary(self) -> None:
        """A replica that comes back while another one seals."""
        primaries = [
            b
            for b in self.history.brokers.values()
            if any(h.links and h.machine.state is State.OPEN for h in b.holdings.values())
        ]
        if primaries:
            self._pause(self.world.random.choice(primaries).process, 4 * SECOND)

    def pause_broker(self) -> None:
        self._pause(self.world.random.choice(list(self.history.brokers.values())).process, 12 * SECOND)

    def pause_leader(self) -> None:
        self._pause(self.world.random.choice(list(self.history.leaders.values())).process, 12 * SECOND)

    def pause_producer(self) -> None:
        self._pause(self.world.random.choice(self.history.producers).process, 8 * SECOND)

    def pause_reader(self) -> None:
        self._pause(self.world.random.choice(self.history.readers).process, 8 * SECOND)

    def pause_members(self, longest: int) -> None:
        """All of them, so that their group falls behind."""
        for member in self.history.members if not self.over else ():
            self._pause(member.process, longest)

    def cut(self) -> None:
        """One direction between two hosts, or both, or everything of one host."""
        history, dice = self.history, self.world.random
        hosts = [*history.brokers, *history.leader_addresses, *(p.name for p in history.producers), FILER, API]
        one, other = dice.sample(hosts, 2)
        cuts = {(one, other)}
        if dice.random() < 0.4:
            cuts.add((other, one))
        if dice.random() < 0.2:
            cuts = {(one, host) for host in hosts} | {(host, one) for host in hosts}
        self._tell("cut " + ", ".join(f"{a}→{b}" for a, b in sorted(cuts)[:4]))
        history.network.cuts |= cuts

        def heal() -> None:
            history.network.cuts -= cuts
            self._tell("healed " + ", ".join(f"{a}→{b}" for a, b in sorted(cuts)[:4]))

        self._later(self.world.between(200 * MS, 10 * SECOND), heal)

    def kill_leader(self) -> None:
        self.end_leader(self.world.random.choice(list(self.history.leaders.values())))

    def end_leader(self, leader: Leader) -> None:
        """Another process leads, some time later."""
        self._tell(f"kill {leader.process.name}")
        leader.process.kill()
        self._later(self.world.between(100 * MS, 5 * SECOND), lambda: self.history.start_leader(leader.address))

    def filer_away(self) -> None:
        faults = self.history.store.faults
        faults.away = True
        self._tell("the filer is away")

        def back() -> None:
            faults.away = False
            self._tell("the filer is back")

        self._later(self.world.between(SECOND, self.world.random.choice([5, 20, 60]) * SECOND), back)

    def terminate_broker(self) -> None:
        """SIGTERM of one broker, or of all; who does not exit in time is killed."""
        brokers = list(self.history.brokers.values())
        chosen = brokers if self.world.chance(0.2) else [self.world.random.choice(brokers)]
        for broker in chosen:
            if broker.process.alive and not broker.leaving:
                broker.process.run(broker.leave)
                self._later(60 * SECOND, lambda broker=broker: self.history.kill_broker(broker))

    def reuse_address(self) -> None:
        """A broker dies and another one starts at its address."""
        broker = self.world.random.choice(list(self.history.brokers.values()))
        self._tell(f"{broker.incarnation} dies, another broker gets its address")
        self.history.kill_broker(broker)
        self._later(
            self.world.between(0, 300 * MS),
            lambda: self.history.start_broker(broker.address, self.world.unique("other")),
        )

    def jump_clock(self) -> None:
        node = self.world.random.choice([*self.history.leaders.values(), *self.history.brokers.values()])
        node.skew += self.world.between(-10 * SECOND, 10 * SECOND)
        self._tell(f"the clock of {node.process.name} is off by {node.skew / 1e6:.3f} s")

    def crash_producer(self) -> None:
        self.history.next_epoch(self.world.random.choice(self.history.producers[1:]), crash=True)

    def zombie_producer(self) -> None:
        self.history.next_epoch(self.world.random.choice(self.history.producers[1:]), crash=False)

    def restart_reader(self) -> None:
        self.history.restart_reader(self.world.random.randrange(len(self.history.readers)))

    def restart_member(self) -> None:
        if self.history.members:
            self.history.restart_member(self.world.random.randrange(len(self.history.members)))

    def request(self, actions: Sequence[str] = ()) -> tuple[Request, Leader] | None:
        """A person asks a leader for something: one of ``actions``, or of what is usual. None when it is refused."""
        dice = self.world.random
        leader = dice.choice(list(self.history.leaders.values()))
        layout = leader.machine.layout
        if layout is None:
            return None
        segments = sorted(accepting(layout), key=lambda s: s.range)
        action = dice.choice(actions or self.requests)
        at = dice.randrange(len(segments))
        if action == "split" and len(segments[at].range) < 2:
            return None
        chosen = segments[at : at + 2] if action == "merge" else segments[at : at + 1]
        request = Request(action, tuple(s.name for s in chosen))
        self._tell(f"asks {leader.process.name} to {action} {', '.join(request.segments)}")
        try:
            leader.machine.ask(request)
        except ValueError as error:
            self._tell(f"is refused: {error}")
            return None
        return request, leader

    # ---- inside

    def _do(self, kind: Callable[[], object]) -> None:
        if not self.over:
            kind()

    def _later(self, delay: int, action: Callable[[], None]) -> None:
        """Within the time of faults; ``end`` does it otherwise."""
        self.world.after(delay, lambda: None if self.over else action())

    def _pause(self, process: Process, longest: int) -> None:
        if process.alive and not process.paused:
            self._tell(f"pause {process.name}")
            process.pause()

            def resume() -> None:
                self._tell(f"resume {process.name}")
                process.resume()

            self._later(self.world.between(300 * MS, longest), resume)

    def _tell(self, what: str) -> None:
        self.world.tell("!", "", what)
