"""Changes of a topic's columns as a user states them, applied to the columns that the topic has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from smq_core.errors import InvalidRequest
from smq_core.model.entities import Column


@dataclass(frozen=True, slots=True)
class ColumnChanges:
    """``add`` and ``widen`` have types by name. New columns are nullable, because older messages have no value."""

    add: Mapping[str, str] = field(default_factory=dict)
    drop: Sequence[str] = ()
    widen: Mapping[str, str] = field(default_factory=dict)
    make_nullable: Sequence[str] = ()

    def apply(self, columns: Sequence[Column]) -> tuple[Column, ...]:
        """All columns after the changes; the leader decides whether these may follow. Raises InvalidRequest."""
        names = [column.name for column in columns]
        problems = [
            *(f"there is no column {name!r}" for name in self._changed() if name not in names),
            *(f"column {name!r} is there already" for name in self.add if name in names),
            *(f"column {name!r} is to be dropped and changed" for name in self.drop if name in self._altered()),
        ]
        if problems:
            raise InvalidRequest(f"{'; '.join(problems)}. The columns are {', '.join(names)}")
        kept = [column for column in columns if column.name not in self.drop]
        return (*map(self._apply, kept), *(Column(name, type_, nullable=True) for name, type_ in self.add.items()))

    def _apply(self, column: Column) -> Column:
        nullable = column.nullable or column.name in self.make_nullable
        return replace(column, type=self.widen.get(column.name, column.type), nullable=nullable)

    def _altered(self) -> list[str]:
        return [*self.widen, *self.make_nullable]

    def _changed(self) -> list[str]:
        return list(dict.fromkeys([*self.drop, *self._altered()]))
