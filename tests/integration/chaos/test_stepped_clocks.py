"""The clocks of chaos runs: each process has its own, and its wall clock is stepped while it runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.programs import load_chaos_program

DAY = 86400


clocks = load_chaos_program("faults/clocks")
pytestmark = pytest.mark.skipif(clocks.unavailable_reason() is not None, reason=str(clocks.unavailable_reason()))

PROGRAM = """
import sys, time
for line in sys.stdin:
    while abs((time.time_ns() - int(line) * 10**9) // 10**9) > 20000:
        time.sleep(0.01)
    print("reached", time.monotonic_ns(), flush=True)
"""


def test_the_wall_clock_is_stepped_and_the_monotonic_clock_is_not(tmp_path: Path) -> None:
    stepped = clocks.SteppedClocks(tmp_path, ["leader", "broker-1"])
    environment = os.environ | {"SMQ_NAME": "broker-1"}
    process = subprocess.Popen(
        [str(stepped.script), sys.executable, "-c", PROGRAM],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    now = int(subprocess.check_output(["date", "+%s"]))
    seen = []
    try:
        for offset in (0, DAY, -DAY, 0):
            stepped.set("broker-1", offset)
            process.stdin.write(f"{now + offset}\n")
            process.stdin.flush()
            word, monotonic = process.stdout.readline().split()
            assert word == "reached"
            seen.append(int(monotonic))
    finally:
        process.kill()
        process.wait()
    assert seen == sorted(seen)
