"""What a group's file may say: only messages that its members were given since its positions were set last."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from smq_core.invariants import Row, Violation
from smq_core.reading.consumer_group import Group
from support.sim.checks.elasticity_checker import ElasticChecker
from support.sim.engine.world import World
from support.sim.filer.object_store import SimulatedStore

if TYPE_CHECKING:
    from support.sim.histories.protocol import History


class GroupChecker(ElasticChecker):
    def __init__(self, world: World, store: SimulatedStore) -> None:
        super().__init__(world, store)
        self.given: dict[str, dict[str, int]] = {}
        """By group and segment: the messages below this offset were given to members since the last reset."""
        self.epochs: dict[str, str] = {}
        """That of each group as its file has it."""
        self._former_epochs: set[str] = set()
        self._wanted: dict[str, list[dict[str, int]]] = {}

    def assigned(self, name: str, group: Group) -> None:
        """A leader from before a reset may still assign by what was committed then; it can commit nothing."""
        if group.epoch == self.epochs.get(name):
            super().assigned(name, group)

    def will_set(self, group: str, positions: dict[str, int]) -> None:
        """An administrator is going to set these positions."""
        self._wanted.setdefault(group, []).append(positions)

    def delivered(self, group: str, epoch: str | None, rows: Iterable[Row]) -> None:
        if epoch != self.epochs.get(group):
            return
        given = self.given.setdefault(group, {})
        for row in rows:
            if row.offset == given.get(row.segment, 0):  # a gap shows that it goes on elsewhere than the group
                given[row.segment] = row.offset + 1

    def _stored(self, path: str, value: Any) -> None:
        group = path.removeprefix("group/")
        is_group = path.startswith("group/")
        if is_group and (value is None or value.deleted):
            self.epochs.pop(group, None)
            self.owners.pop(group, None)
            self.committed.pop(group, None)  # retention need not wait for it any more
            return
        if is_group and value.epoch != self.epochs.get(group):
            self._begin_epoch(group, value.epoch, dict(value.positions))
        super()._stored(path, value)
        if not is_group:
            return
        given = self.given.get(group, {})
        for segment, offset in value.positions.items():
            if segment in self.losses.lost or segment in self.retained.rows:
                continue
            if offset > given.get(segment, 0):
                words = f"{group} has committed {offset}, and its members were given {given.get(segment, 0)}"
                self.must([Violation(10, segment, words)])

    def _begin_epoch(self, group: str, epoch: str, positions: dict[str, int]) -> None:
        """The group is new, or an administrator has set its positions."""
        if epoch in self._former_epochs:
            self.must([Violation(10, group, "what an administrator has changed is undone")])
        if any(positions.values()) and positions not in (*self._wanted.get(group, ()), self.committed.get(group)):
            self.must([Violation(10, group, f"it begins at {positions}, and nobody has set that")])
        self._former_epochs.add(epoch)
        self.epochs[group] = epoch
        self.retained.born[group] = self.world.now  # retention may have read the positions of before
        self.committed[group] = dict(positions)
        self.given[group] = dict(positions)

    def uncommitted(self, history: History) -> dict[str, str]:
        """The groups that have not committed everything, although nobody is in the way."""
        ends = {name: outcome.end for name, outcome in self.seals.items() if name not in self.retained.rows}
        behind = {}
        for group in history.groups:
            positions = self.committed.get(group, {})
            read = self.ancestors(positions)
            short = {s: end for s, end in ends.items() if s not in read and positions.get(s, 0) < end}
            if short:
                behind[group] = f"has not committed up to {short}; it is at {positions}"
        return behind
