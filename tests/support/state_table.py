"""A state machine tried in every state with every input, against a table.

A row of a table is one input. It says, for each state, what the machine then does: the error it raises, or what it
returns and which of its observed fields change. Whatever is not named must stay as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import pytest

M = TypeVar("M")


@dataclass(frozen=True)
class Does:
    """What an input does: what it returns, and the new values of the fields that change."""

    returns: Any = None
    changes: Mapping[str, Any] = field(default_factory=dict)


def does(returns: Any = None, **changes: Any) -> Does:
    return Does(returns, changes)


NOTHING = does()

Expected = Does | type[Exception]


@dataclass(frozen=True)
class StateTable(Generic[M]):
    """``states`` makes a machine in each state, ``inputs`` gives it each input, ``observe`` reads its fields.

    A key of a row in ``table`` is a state or a tuple of states.
    """

    states: Mapping[str, Callable[[], M]]
    inputs: Mapping[str, Callable[[M], object]]
    observe: Callable[[M], dict[str, object]]
    table: Mapping[str, Mapping[str | tuple[str, ...], Expected]]

    def pairs(self) -> list[tuple[str, str]]:
        return [(state, input_) for input_ in self.inputs for state in self.states]

    def check_complete(self) -> None:
        """Every state is in each row once, and every input has a row."""
        assert list(self.table) == list(self.inputs)
        for input_, row in self.table.items():
            assert sorted(state for state, _ in self._cells(row)) == sorted(self.states), input_

    def check(self, state: str, input_: str) -> None:
        expected = dict(self._cells(self.table[input_]))[state]
        machine = self.states[state]()
        before = self.observe(machine)
        if isinstance(expected, Does):
            returned = self.inputs[input_](machine)
            assert returned == expected.returns
            assert self.observe(machine) == before | expected.changes
            assert all(before[name] != value for name, value in expected.changes.items()), "it changed nothing"
        else:
            with pytest.raises(expected):
                self.inputs[input_](machine)
            assert self.observe(machine) == before, "an input that is refused changes nothing"

    @staticmethod
    def _cells(row: Mapping[str | tuple[str, ...], Expected]) -> Iterator[tuple[str, Expected]]:
        for key, expected in row.items():
            for state in (key,) if isinstance(key, str) else key:
                yield state, expected
