"""The check that lets constants of times and sizes name their unit."""

from __future__ import annotations

import pytest

from tools.check_units import check


@pytest.mark.parametrize(
    "text", ["TIMEOUT = 2.0", "MAX_AGE = 30 * 60 * SECOND", "MAX_CREDIT: int = 64 << 20", 'PAUSE = "1.5"']
)
def test_a_number_without_its_unit_is_found(text: str) -> None:
    (found,) = check([("core/smq_core/c.py", text)])
    assert found.startswith("core/smq_core/c.py:1: ") and "has no unit" in found


@pytest.mark.parametrize(
    "text",
    [
        "TIMEOUT_SECONDS = 2.0",
        "MAX_AGE: Micros = 30 * 60 * SECOND",
        "UNACKED_PER_DELAY = 4",
        "IS_TIMEOUT = True",
        "TIMEOUT = timedelta(seconds=2)",
        'PAUSE = "off"',
        "timeout = 2.0",
    ],
)
def test_what_has_a_unit_or_needs_none_is_left(text: str) -> None:
    assert not check([("core/smq_core/c.py", text)])
