"""A table of mutations: functions that break one rule each, which the simulation must detect.

Each takes pytest's ``monkeypatch``, and its docstring is the rule that it breaks.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

Patch = pytest.MonkeyPatch
BreakRule = Callable[[Patch], None]


class MutationTable(dict[str, BreakRule]):
    """Maps names to mutations. ``@table.add`` adds one."""

    def add(self, break_it: BreakRule) -> BreakRule:
        self[break_it.__name__] = break_it
        return break_it
