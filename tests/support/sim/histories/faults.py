"""The faults of a history. The seed chooses a few kinds, and how often each occurs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from smq_core.model.segment_action import SegmentAction
from smq_core.model.segment_changes import SegmentChange
from smq_core.reconcile.answers import ChangeRequested
from smq_core.replica.segment_replica import ReplicaState
from support.sim.engine.termination_proofs import HOST as API
from support.sim.engine.world import MS, SECOND, Process
from support.sim.filer.object_store import HOST as FILER

if TYPE_CHECKING:
    from support.sim.histories.protocol import History
    from support.sim.leaders.protocol_leader import SimulatedLeader


class FaultSchedule:
    """Schedules the faults of one history. ``end`` undoes lasting ones; ``requests`` has the manual requests."""

    requests = ("split", "merge", "roll", "move")
    none = False
    """True if the history has no faults."""

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
        self.history.store.slowdown = dice.choice([1, 1, 1, 10, 30])
        rate = dice.choice([0.0, 0.0, 0.05, 0.2])
        for name in ("lost_answer", "late", "refused", "false_conflict", "stale_get", "failed_get"):
            if dice.random() < 0.5:
                setattr(faults, name, rate * dice.random())

    def soon(self, delay: int, kind: Callable[[], object]) -> None:
        """Adds a fault, unless faults are over by then, because nothing would be restarted after it."""
        self.world.after(delay, lambda: self._do(kind))

    def end(self) -> None:
        """Ends all faults and restarts every dead process."""
        self.over = True
        history = self.history
        history.network.cuts.clear()
        history.network.slow_hosts.clear()
        history.network.slow = history.network.repeat = history.network.hole = 0.0
        faults = history.store.faults
        history.store.slowdown = 1
        faults.away = False
        faults.lost_answer = faults.late = faults.refused = faults.false_conflict = 0.0
        faults.stale_get = faults.failed_get = 0.0
        for process in list(history.processes()):
            if process.paused:
                process.resume()
        history.journals.end()
        history.restart_all()
        if all(broker.leaving for broker in history.brokers.values()):
            # All got SIGTERM, and each waits until its segments have moved. Kubernetes has started other Pods by now.
            history.start_broker("replacement", "replacement")
        self._log("faults end")

    # ---- kinds

    def kill_broker(self) -> None:
        if not self.history.brokers:
            return  # all have left, and new ones have not started yet
        broker = self.world.random.choice(list(self.history.brokers.values()))
        self._log(f"kill {broker.incarnation}")
        self.history.kill_broker(broker)
        self._later(self.world.between(300 * MS, 6 * SECOND), lambda: self.history.start_broker(broker.address))

    def kill_two(self) -> None:
        self.kill_broker()
        self._later(self.world.between(0, SECOND), self.kill_broker)

    def kill_one_pause_another(self) -> None:
        """Kills one replica of a segment and pauses another, so that only the paused one has the tail."""
        held = [
            h
            for b in self.history.brokers.values()
            for h in b.hosted_segments.values()
            if h.machine.state is ReplicaState.OPEN
        ]
        if held:
            hosted = self.world.random.choice(held)
            names = {r.incarnation for r in hosted.segment.replicas} - {hosted.broker.incarnation}
            self._log(f"kill {hosted.process.name}, pause another replica of {hosted.name}")
            for broker in self.history.brokers.values():
                if broker.incarnation in names:
                    self.pause(broker.process, 12 * SECOND)
                    break
            self.history.kill_broker(hosted.broker)

    def pause_primary(self) -> None:
        """Pauses a primary, which resumes while another replica seals."""
        primaries = [
            b
            for b in self.history.brokers.values()
            if any(h.links and h.machine.state is ReplicaState.OPEN for h in b.hosted_segments.values())
        ]
        if primaries:
            self.pause(self.world.random.choice(primaries).process, 4 * SECOND)

    def pause_broker(self) -> None:
        self.pause(self.world.random.choice(list(self.history.brokers.values())).process, 12 * SECOND)

    def pause_leader(self) -> None:
        self.pause(self.world.random.choice(list(self.history.leaders.values())).process, 12 * SECOND)

    def pause_producer(self) -> None:
        self.pause(self.world.random.choice(self.history.producers).process, 8 * SECOND)

    def pause_reader(self) -> None:
        self.pause(self.world.random.choice(self.history.readers).process, 8 * SECOND)

    def pause_members(self, longest: int) -> None:
        """Pauses all members, so that their groups fall behind."""
        for member in self.history.members if not self.over else ():
            self.pause(member.process, longest)

    def cut(self) -> None:
        """Cuts one direction between two hosts, or both, or all connections of one host."""
        history, dice = self.history, self.world.random
        hosts = [*history.brokers, *history.leader_addresses, *(p.name for p in history.producers), FILER, API]
        one, other = dice.sample(hosts, 2)
        cuts = {(one, other)}
        if dice.random() < 0.4:
            cuts.add((other, one))
        if dice.random() < 0.2:
            cuts = {(one, host) for host in hosts} | {(host, one) for host in hosts}
        self._log("cut " + ", ".join(f"{a}→{b}" for a, b in sorted(cuts)[:4]))
        history.network.cuts |= cuts

        def heal() -> None:
            history.network.cuts -= cuts
            self._log("healed " + ", ".join(f"{a}→{b}" for a, b in sorted(cuts)[:4]))

        self._later(self.world.between(200 * MS, 10 * SECOND), heal)

    def kill_leader(self) -> None:
        self.end_leader(self.world.random.choice(list(self.history.leaders.values())))

    def end_leader(self, leader: SimulatedLeader) -> None:
        """Kills a leader. Another process leads some time later."""
        self._log(f"kill {leader.process.name}")
        leader.process.kill()
        self._later(self.world.between(100 * MS, 5 * SECOND), lambda: self.history.start_leader(leader.address))

    def filer_away(self) -> None:
        faults = self.history.store.faults
        faults.away = True
        self._log("the filer is away")

        def back() -> None:
            faults.away = False
            self._log("the filer is back")

        self._later(self.world.between(SECOND, self.world.random.choice([5, 20, 60]) * SECOND), back)

    def terminate_broker(self) -> None:
        """Sends SIGTERM to one broker, or to all. A broker that does not exit in time is killed."""
        brokers = list(self.history.brokers.values())
        chosen = brokers if self.world.chance(0.2) else [self.world.random.choice(brokers)]
        for broker in chosen:
            if broker.process.alive and not broker.leaving:
                broker.process.run(broker.leave)
                self._later(60 * SECOND, lambda broker=broker: self.history.kill_broker(broker))

    def reuse_address(self) -> None:
        """A broker dies and another one starts at its address."""
        broker = self.world.random.choice(list(self.history.brokers.values()))
        self._log(f"{broker.incarnation} dies, another broker gets its address")
        self.history.kill_broker(broker, gone=True)
        self._later(
            self.world.between(0, 300 * MS),
            lambda: self.history.start_broker(broker.address, self.world.unique("other")),
        )

    def jump_clock(self) -> None:
        node = self.world.random.choice([*self.history.leaders.values(), *self.history.brokers.values()])
        node.skew += self.world.between(-10 * SECOND, 10 * SECOND)
        self._log(f"the clock of {node.process.name} is off by {node.skew / 1e6:.3f} s")

    def crash_producer(self) -> None:
        self.history.next_epoch(self.world.random.choice(self.history.producers[1:]), crash=True)

    def zombie_producer(self) -> None:
        self.history.next_epoch(self.world.random.choice(self.history.producers[1:]), crash=False)

    def restart_reader(self) -> None:
        self.history.restart_reader(self.world.random.randrange(len(self.history.readers)))

    def restart_member(self) -> None:
        if self.history.members:
            self.history.restart_member(self.world.random.randrange(len(self.history.members)))

    def request(self, actions: Sequence[str] = ()) -> tuple[SegmentChange, SimulatedLeader] | None:
        """Sends a leader a manual request: one of ``actions``, or a usual one. None if the leader refuses it."""
        dice = self.world.random
        leader = dice.choice(list(self.history.leaders.values()))
        layout = leader.machine.layout
        if layout is None:
            return None
        segments = sorted(layout.writable_segments, key=lambda s: s.range)
        action = dice.choice(actions or self.requests)
        at = dice.randrange(len(segments))
        if action == "split" and len(segments[at].range) < 2:
            return None
        chosen = segments[at : at + 2] if action == "merge" else segments[at : at + 1]
        request = SegmentChange(SegmentAction(action), tuple(s.name for s in chosen))
        self._log(f"asks {leader.process.name} to {action} {', '.join(request.segments)}")
        try:
            leader.machine.handle(ChangeRequested(request), leader.clock())
        except ValueError as error:
            self._log(f"is refused: {error}")
            return None
        return request, leader

    # ---- inside

    def _do(self, kind: Callable[[], object]) -> None:
        if not self.over:
            kind()

    def _later(self, delay: int, action: Callable[[], None]) -> None:
        """Runs the action later if the faults are not over by then; otherwise ``end`` has done it."""
        self.world.after(delay, lambda: None if self.over else action())

    def pause(self, process: Process, longest: int) -> None:
        if process.alive and not process.paused:
            self._log(f"pause {process.name}")
            process.pause()

            def resume() -> None:
                self._log(f"resume {process.name}")
                process.resume()

            self._later(self.world.between(300 * MS, longest), resume)

    def _log(self, what: str) -> None:
        self.world.note("!", "", what)
