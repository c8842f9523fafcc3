"""What a broker's process does without. Each looks at a process of its own."""

import subprocess
import sys

import pytest

BUFFERS = """
import resource, sys
from smq_broker.lean import keep_freed_memory
if sys.argv[1] == "kept":
    assert keep_freed_memory(2**30)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    held = [b"x" * (1 << 20) for _ in range(16)]
    del held
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the page faults of glibc are counted")
def test_freed_memory_is_used_again():
    def faults(how: str) -> int:
        return int(subprocess.run([sys.executable, "-c", BUFFERS, how], capture_output=True, check=True).stdout)

    # 16 MiB are 4096 pages: touched once, or in each of 20 rounds.
    assert faults("kept") < 3 * 4096 < faults("given back")
