"""kill -9 of the filer at many random moments while a Stored segment is written.

This is crash safety only. What survives a power failure is in tests/integration/storage/test_power_failure.py.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from support.fault_injection.filer_kills import check_filer_kills

KILLS = 60
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(0)]


def test_a_stored_segment_loses_and_doubles_nothing_when_the_filer_is_killed_often(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    seed = request.config.getoption("--chaos-seed")
    seed = int(time.time()) if seed is None else seed
    print(f"\n{KILLS} kills of the filer, seed {seed}")
    acked = check_filer_kills(tmp_path, seed, KILLS)
    print(f"{acked} batches acked, all of them in the log once and in order")
