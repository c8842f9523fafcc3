"""Whether the brokers of a history have journals, what becomes of these when a process ends, and faults of their disks.

The draws are independent of all others of the same seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING

from smq_core.replica.segment_replica import ReplicaState
from support.sim.brokers.journal import DAMAGES, SimulatedDisk
from support.sim.engine.world import MS, SECOND

if TYPE_CHECKING:
    from support.sim.brokers.broker import SimulatedBroker
    from support.sim.histories.faults import FaultSchedule
    from support.sim.histories.protocol import History

KEPT, GONE = "kept", "gone"
# Each history has one of these: how likely each state of a journal is.
JOURNAL_STATES: tuple[dict[str, float], ...] = (
    {KEPT: 1},
    {KEPT: 1},
    {KEPT: 6, GONE: 2, "truncated": 1, "damaged": 1, "headless": 1, "other boot": 0.5},
    {"truncated": 2, "damaged": 2, "other boot": 1},
    {KEPT: 2, GONE: 1},
    {KEPT: 2, "older": 1},
    {"headless": 2, GONE: 1},
    {GONE: 1},
)


# Each history with journals has two of these.
FAULTS = (
    "kill_all",
    "kill_all_without_leader",
    "kill_twice",
    "fill_disk",
    "fill_disks_while_segments_open",
    "slow_disk",
)


class JournalScenario:
    """``on``: Replicated segments have journals. ``ended`` says what happened to the one of a process that ended."""

    def __init__(self, seed: int, share: float, states: Sequence[dict[str, float]]) -> None:
        self.dice = dice = Random(f"journals of {seed}")
        self.on = dice.random() < share
        self.disks: dict[str, SimulatedDisk] = {}
        self.states: dict[str, int] = {}
        """How often each state occurred."""
        self._likely_states = dice.choice(states)
        self._slowness = dice.choice([0, 0, 2 * MS, 20 * MS])
        self.kinds = dice.sample(list(FAULTS), 2)
        self._history: History

    def begin(self, history: History) -> None:
        self._history = history
        if not self.on or history.faults.none:
            return
        for kind in self.kinds:
            for _ in range(self.dice.choice([1, 1, 2])):
                at = int(self.dice.uniform(0.1, 1) * history.horizon)
                fault: Callable[[], None] = getattr(self, kind)
                history.faults.soon(at, fault)

    def disk_of(self, name: str) -> SimulatedDisk | None:
        """The disk of the broker of that name; None without journals."""
        if not self.on:
            return None
        return self.disks.setdefault(name, SimulatedDisk(self._slowness))

    def ended(self, broker: SimulatedBroker) -> None:
        """The process has ended. Gives termination proofs if there are any."""
        supervisor, disk = self._history.supervisor, self.disks.get(broker.name)
        if disk is None:
            supervisor.died(broker.incarnation)
            return
        states = list(self._likely_states)
        state = self.dice.choices(states, [self._likely_states[f] for f in states])[0]
        self.states[state] = self.states.get(state, 0) + 1
        if state == GONE:
            self.lose_disk(broker)
        else:
            supervisor.ended(broker.incarnation)
        if state in DAMAGES:
            for name, journal in disk.journals.get(broker.incarnation, {}).items():
                self._history.world.note("!", name, f"the journal of {broker.incarnation} is {state}")
                DAMAGES[state](journal, self.dice)
        if state == "other boot":
            disk.reboot(broker.incarnation, self.dice)

    def lose_disk(self, broker: SimulatedBroker) -> None:
        """The Pod of a process that has ended is gone, with all journals in it."""
        disk = self.disks.pop(broker.name, None)
        self._history.supervisor.died(broker.incarnation)
        if disk is not None:
            self._history.world.note("!", "", f"the disk of {broker.name} is gone")
            for incarnation in disk.used_by:
                self._history.supervisor.died(incarnation)
            disk.destroy()

    def is_whole(self, incarnation: str) -> bool:
        """Whether a disk certainly names all segments that this incarnation hosted."""
        return any(disk.whole.get(incarnation, False) for disk in self.disks.values())

    # ---- faults

    def kill_all(self) -> None:
        """Kills all brokers at about the same time. Each starts again soon."""
        self._log("kill all brokers")
        self._kill(self._living())

    def kill_all_without_leader(self) -> None:
        """Kills or pauses the leaders, and soon after it all replicas of a segment, or all brokers."""
        faults, history = self._faults, self._history
        for leader in history.leaders.values():
            if self.dice.random() < 0.5:
                faults.end_leader(leader)
            else:
                faults.pause(leader.process, 12 * SECOND)
        delay = self.dice.choice([0, 500 * MS, 5 * SECOND])
        faults.soon(delay, self.kill_all if self.dice.random() < 0.5 else self._kill_replicas)

    def kill_twice(self) -> None:
        """Kills all replicas of a segment, and again when they have just recovered, so that none has sealed yet."""
        self._kill_replicas(300 * MS)
        for _ in range(self.dice.choice([1, 2])):
            self._faults.soon(self.dice.randint(100, 900) * MS, lambda: self._kill(self._recovering(), 300 * MS))

    def fill_disk(self) -> None:
        """Every write to a disk fails for a while, or to all disks; then all brokers may be killed, too."""
        disks = [it for it in self.disks.values() if not it.full]
        everywhere = self.dice.random() < 0.5
        if everywhere and self.dice.random() < 0.7:
            self._faults.soon(self.dice.randint(300, 4000) * MS, self.kill_all)
        for disk in disks if everywhere else disks[:1]:
            self._log("a disk is full")
            disk.full = True
            self._faults.soon(self.dice.randint(500, 6000) * MS, lambda disk=disk: setattr(disk, "full", False))

    def fill_disks_while_segments_open(self) -> None:
        """All disks are full when segments fail over to others, so that these have no journals; then all are killed."""
        disks = [it for it in self.disks.values() if not it.full]
        self._log("all disks are full")
        for disk in disks:
            disk.full = True
        self._kill_replicas()
        self._faults.soon(self.dice.randint(2000, 6000) * MS, lambda: self._kill(self._living()))
        for disk in disks:
            self._faults.soon(self.dice.randint(5000, 8000) * MS, lambda disk=disk: setattr(disk, "full", False))

    def slow_disk(self) -> None:
        """Writes to a disk take long for a while."""
        if self.disks:
            disk = self.dice.choice(list(self.disks.values()))
            self._log("a disk is slow")
            disk.slowness = self.dice.choice([100 * MS, SECOND])
            self._faults.soon(self.dice.randint(500, 6000) * MS, lambda: setattr(disk, "slowness", self._slowness))

    def end(self) -> None:
        """Faults end."""
        for disk in self.disks.values():
            disk.full, disk.slowness = False, min(disk.slowness, 2 * MS)

    # ---- inside

    @property
    def _faults(self) -> FaultSchedule:
        return self._history.faults

    def _living(self) -> list[SimulatedBroker]:
        return [b for b in self._history.brokers.values() if b.process.alive]

    def _recovering(self) -> list[SimulatedBroker]:
        return [b for b in self._living() if b.shells.recovered.unsealed()]

    def _kill_replicas(self, restart_within: int = 4 * SECOND) -> None:
        held = [h for b in self._living() for h in b.hosted_segments.values() if h.machine.state is ReplicaState.OPEN]
        if held:
            segment = self.dice.choice(held).segment
            names = {r.incarnation for r in segment.replicas}
            self._log(f"kill all replicas of {segment.name}")
            self._kill([b for b in self._living() if b.incarnation in names], restart_within)

    def _kill(self, brokers: list[SimulatedBroker], restart_within: int = 4 * SECOND) -> None:
        for broker in brokers:
            delay = self.dice.choice([0, self.dice.randint(0, 100) * MS])
            self._faults.soon(delay, lambda broker=broker: self._kill_one(broker, restart_within))

    def _kill_one(self, broker: SimulatedBroker, restart_within: int) -> None:
        history = self._history
        history.kill_broker(broker)
        self._faults.soon(self.dice.randint(0, restart_within), lambda: history.start_broker(broker.address))

    def _log(self, what: str) -> None:
        self._history.world.note("!", "", what)
