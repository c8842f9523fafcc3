"""kill -9 of the filer while a Stored segment is written. `make chaos` does it more often."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.fault_injection.filer_kills import check_filer_kills

pytestmark = pytest.mark.integration


@pytest.mark.slow
def test_a_stored_segment_loses_and_doubles_nothing_when_the_filer_is_killed(tmp_path: Path) -> None:
    assert check_filer_kills(tmp_path, seed=1, kills=3) > 0
