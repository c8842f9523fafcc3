"""Histories whose desired schema changes, once or often, under the faults of every history. ``run(seed)`` as elsewhere.

Each leader sees the desired states with its own delay. A new one may begin with an old state, so two leaders may
desire different schemas. Some states are not allowed, and must change nothing.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from smq_core.model.entities import Column, Layout, Segment
from support.sim.checks.schema_checker import SchemaChecker
from support.sim.clients.messages import SimulatedSubBatch
from support.sim.clients.producer import SimulatedProducer
from support.sim.engine.world import SECOND
from support.sim.filer.chunk_chain import LAYOUT
from support.sim.histories.protocol import History, HistoryFailure
from support.sim.histories.protocol import run as run_history
from support.sim.leaders.protocol_leader import SimulatedLeader

INTEGERS = ("int8", "int16", "int32", "int64")
FIRST = (Column("key", "string"), Column("count", "int8"))
# The probability that a leader sees the newest desired state at a step.
CATCH_UP_SHARE = 0.15
# The probability that a producer reads the layout although nothing is wrong.
WATCH_SHARE = 0.5


class SchemaScenario:
    """The desired states, oldest first. The generation of a state is its place, counted from 1."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.states: list[tuple[Column, ...]] = [FIRST]
        self.allowed = FIRST
        """The newest state that is allowed."""
        self.allowed_states = [set(FIRST)]
        self.dropped: set[str] = set()
        self._added = 0

    def change(self) -> str:
        """The next desired state."""
        columns = self.allowed
        added = [column for column in columns if column.name.startswith("added")]
        match self.dice.choice(["add", "add", "widen", "drop", "reorder", "refuse"]):
            case "widen" if columns[1].type != INTEGERS[-1]:
                wider = self.dice.choice(INTEGERS[INTEGERS.index(columns[1].type) + 1 :])
                columns = (columns[0], replace(columns[1], type=wider), *columns[2:])
            case "drop" if added:
                gone = self.dice.choice(added)
                self.dropped.add(gone.name)
                columns = tuple(column for column in columns if column is not gone)
            case "reorder" if added:
                columns = (*columns[:2], *reversed(columns[2:]))
            case "refuse":
                self.states.append((columns[0], Column("count", "string"), *columns[2:]))
                return "a schema that is not allowed is desired"
            case _:
                self._added += 1
                columns = (*columns, Column(f"added{self._added}", "string", nullable=True))
        self.states.append(columns)
        self.allowed_states.append(set(columns))
        self.allowed = columns
        return f"the columns {', '.join(f'{c.name} {c.type}' for c in columns)} are desired"

    def end(self) -> None:
        """Repeats the newest allowed state, so that the last one is allowed."""
        self.states.append(self.allowed)


class SchemaLeader(SimulatedLeader):
    history: SchemaHistory

    def __init__(self, history: SchemaHistory, address: str) -> None:
        self._generation = history.scenario.dice.randint(1, len(history.scenario.states))
        super().__init__(history, address)

    def step(self) -> None:
        scenario = self.history.scenario
        if self.history.faults_are_over or scenario.dice.random() < CATCH_UP_SHARE:
            self._generation = len(scenario.states)
        layout = self.machine.layout
        self.history.outdated += layout is not None and self._generation < layout.schemas[-1].generation
        self.machine.generation = self._generation
        self.machine.columns = scenario.states[self._generation - 1]
        super().step()


class SchemaProducer(SimulatedProducer):
    """Follows the layout, as a client that watches it, and counts what a change of the schema does to its batches."""

    history: SchemaHistory

    def _check_errors(self) -> bool:
        return super()._check_errors() or self.history.scenario.dice.random() < WATCH_SHARE

    def reshape(self, sub_batch: Any, segment: Segment) -> SimulatedSubBatch:
        reshaped = super().reshape(sub_batch, segment)
        self.history.waited += not reshaped.fits(segment)
        self.history.reshaped += reshaped != sub_batch
        return reshaped


class SchemaHistory(History):
    """``reshaped``, ``waited`` and ``outdated`` count how often a batch got another version, a newer one waited for
    successors, and a leader had an older desired state than the layout.
    """

    checker: SchemaChecker
    checker_kind = SchemaChecker
    columns = FIRST

    def __init__(self, seed: int) -> None:
        self.scenario = SchemaScenario(Random(f"schema of {seed}"))
        self.faults_are_over = False
        self.reshaped = self.waited = self.outdated = 0
        super().__init__(seed)

    def draw(self, dice: Random) -> None:
        self.checker.scenario = self.scenario
        super().draw(dice)
        often = self.scenario.dice.choice([1, 2, 4, 8])
        for _ in range(often):
            self.world.after(int(self.scenario.dice.uniform(SECOND, self.horizon)), self._change)
        self.world.after(self.horizon, self._end)

    def _change(self) -> None:
        self.world.note("!", "", self.scenario.change())

    def _end(self) -> None:
        self.faults_are_over = True
        self.scenario.end()

    def make_leader(self, address: str) -> SimulatedLeader:
        return SchemaLeader(self, address)

    def make_producer(self, name: str, epoch: int | None, batches: int, run: str = "") -> SimulatedProducer:
        return SchemaProducer(self, name, epoch, batches, run)

    def waiting(self) -> dict[str, str]:
        waiting = super().waiting()
        layout = self.store.truth(LAYOUT)
        if isinstance(layout, Layout):
            newest = layout.schemas[-1]
            if set(newest.columns) != set(self.scenario.allowed):
                waiting["schema"] = f"is {newest}, not {self.scenario.allowed}"
            for segment in layout.segments:
                if segment.schema_version != newest.version:
                    waiting[segment.name] = f"has version {segment.schema_version}, not {newest.version}"
        return waiting


def run(seed: int) -> HistoryFailure | None:
    """Runs the history of a seed."""
    return run_history(seed, SchemaHistory)
