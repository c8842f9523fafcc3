"""Who writes in a history besides its usual producers, and when segments forget producers.

Producers come for a few messages and end, lose their connections, fall silent, claim one id at once, or use one id and
epoch without a claim. The draws are independent of all others of the same seed.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from smq_core.replica.log_entries import ProducerLimits
from smq_core.replica.segment_replica import ReplicaState
from support.sim.clients.messages import NO_LIMITS
from support.sim.clients.producer import SimulatedProducer
from support.sim.engine.world import MS, SECOND

if TYPE_CHECKING:
    from support.sim.histories.protocol import History


class ProducerScenario:
    def __init__(self, seed: int, *, forgets: bool) -> None:
        self._dice = dice = Random(f"producers of {seed}")
        self.limits = NO_LIMITS
        if dice.random() < 0.75 or forgets:
            self.limits = ProducerLimits(
                dice.choice([2, 3, 3, 3 if forgets else NO_LIMITS.count]),
                dice.choice([SECOND, 2 * SECOND, NO_LIMITS.idle]),
                dice.choice([0, 1, 2, NO_LIMITS.snapshot_below]),
                dice.choice([2, 3, 5]),
            )
        self._visitors = dice.choice([0, 2, 4, 8])
        self._disconnects = dice.choice([0, 1, 3, 5])
        self._idle_phases = dice.choice([0, 1, 2])
        self._clashes = dice.choice([0, 0, 1])
        self._clashes_apart = dice.choice([0, 0, 1])
        self._claimers = dice.choice([0, 0, 0, 2, 3])
        self._slow_visitors = dice.choice([2, 4] if forgets else [0, 0, 0, 1])
        self._lost_tails = dice.choice([1, 2] if forgets else [0, 0, 0, 1])

    def begin(self, history: History) -> None:
        self._history = history
        self._at_random(self._visitors, self._visit)
        if not history.faults.none:
            self._at_random(self._disconnects, self._disconnect)
            self._at_random(self._idle_phases, self._fall_idle)
            self._at_random(self._slow_visitors, self._visit_slowly)
            self._at_random(self._lost_tails, self._lose_tail)
        self._at_random(self._clashes, self._clash)
        self._at_random(self._clashes_apart, self._clash_apart)
        at = self._dice.uniform(0, 0.6)
        for i in range(self._claimers):
            later = self._dice.choice([0, 0, self._dice.uniform(0, 0.3)])
            history.world.after(int((at + later) * history.horizon), lambda i=i: self._claim(i))

    def _at_random(self, often: int, action: Callable[[], object]) -> None:
        for _ in range(often):
            at = int(self._dice.uniform(0.02, 0.95) * self._history.horizon)
            self._history.world.after(at, lambda: None if self._history.faults.over else action())

    def _visit(self) -> SimulatedProducer:
        """A producer with its own id sends a little and ends."""
        history, name = self._history, f"v{len(self._history.producers)}"
        visitor = SimulatedProducer(history, name, 0, self._dice.randint(1, 3))
        visitor.closes_when_idle = True
        history.producers.append(visitor)
        return visitor

    def _visit_slowly(self) -> None:
        """Its streams break while their batches are on the way, so that new streams overtake them.

        Others come and go meanwhile, and are forgotten.
        """
        history, visitor = self._history, self._visit()
        visitor.batches = 6
        history.network.slow_hosts[visitor.name] = 0.4
        for i in range(1, 8):
            history.faults.soon(i * 400 * MS, lambda: visitor.process.run(lambda: visitor.disconnect(0)))
            history.faults.soon(i * 250 * MS, self._visit)

    def _lose_tail(self) -> None:
        """A primary does not reach its followers, forgets a producer that comes back, and dies with these batches."""
        history, faults = self._history, self._history.faults
        primaries = [
            held
            for broker in history.brokers.values()
            for held in broker.hosted_segments.values()
            if held.links and held.machine.state is ReplicaState.OPEN and len(held.streams) > 1
        ]
        if not primaries:
            return
        held = self._dice.choice(primaries)
        address, names = held.broker.address, {stream.producer for stream in held.streams}
        cuts = {(address, link.follower.address) for link in held.links}
        history.world.note("!", "", f"{held.process.name} does not reach its followers, and will die")
        away = [p for p in history.producers if p.producer in names and p.process.alive][:2]
        for producer in away:
            producer.process.run(lambda producer=producer: producer.disconnect(self._after(0.3)))
        history.world.after(150 * MS, lambda: None if faults.over else history.network.cuts.update(cuts))
        faults.soon(int(self._dice.uniform(0.5, 1.8) * SECOND), lambda: history.kill_broker(held.broker))
        faults.soon(2 * SECOND, lambda: history.network.cuts.difference_update(cuts))

    def _clash(self) -> None:
        """A second process gets the id and epoch of a producer that has written already."""
        self._history.clash(self._dice.choice(self._history.producers[:2]))

    def _clash_apart(self) -> None:
        """Two processes have one id and epoch from the start, and write to different segments until these merge."""
        history, name = self._history, f"d{len(self._history.producers)}"
        pair = [SimulatedProducer(history, name, 0, self._dice.randint(4, 12), run) for run in ("", "x")]
        pair[0].divide_keys(pair[1])
        history.producers += pair
        for _ in range(self._dice.randint(1, 3) if "merge" in history.faults.requests else 0):
            later = self._dice.randint(300, 3000) * MS
            history.world.after(later, lambda: None if history.faults.over else history.faults.request(("merge",)))

    def _claim(self, number: int) -> None:
        history = self._history
        claimer = SimulatedProducer(history, "c", None, self._dice.randint(3, 10), f"c{number}")
        history.producers.append(claimer)

    def _disconnect(self) -> None:
        producer, seconds = self._any(), self._dice.uniform(0.2, 5)
        self._history.world.note("!", "", f"{producer.name} is disconnected for {seconds:.1f} s")
        producer.process.run(lambda: producer.disconnect(self._after(seconds)))

    def _fall_idle(self) -> None:
        producer, seconds = self._any(), self._dice.uniform(1, 5)
        self._history.world.note("!", "", f"{producer.name} is silent for {seconds:.1f} s")
        producer.process.run(lambda: producer.fall_idle(self._after(seconds)))

    def _after(self, seconds: float) -> int:
        return self._history.world.now + int(seconds * 1000) * MS

    def _any(self) -> SimulatedProducer:
        producers = self._history.producers
        return self._dice.choice([p for p in producers if p.process.alive and not p.stopped] or producers)
