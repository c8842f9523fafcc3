"""Imports, page faults and heaps of a broker. Each test starts a separate process."""

import subprocess
import sys

import pytest

from smq_storage.process.allocator import code_areas

BUFFERS = """
import resource, sys
from smq_broker.runtime.tuning import keep_freed_memory
if sys.argv[1] == "kept":
    assert keep_freed_memory(2**30)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    held = [b"x" * (1 << 20) for _ in range(16)]
    del held
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

STARTED = """
import sys, threading, types
from pathlib import Path
from smq_broker import main

def run():
    import pyarrow as pa
    from smq_broker.runtime.tuning import keep_freed_memory
    assert keep_freed_memory(2**30)
    held = []
    thread = threading.Thread(target=lambda: held.extend(b"x" * (1 << 20) for _ in range(80)))
    thread.start()
    thread.join()
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    next(line for line in lines if line.endswith("[heap]"))
    rss = next(line for line in lines if line.startswith("Rss:"))
    print(rss.split()[1], pa.default_memory_pool().backend_name)

sys.modules["smq_broker.process"] = types.SimpleNamespace(run=run)
main.main()
"""

IMPORTED = """
import sys
from smq_broker.runtime import import_blocker
import_blocker.block_imports()
import smq_broker.process
print(*sys.modules)
"""

NEEDLESS = {
    "pandas",
    "yaml",
    "rich",
    "pygments",
    "jsonschema",
    "multiprocessing",
    "click",
    "typer",
    "kopf",
    "kubernetes",
}
NEEDLESS |= {
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow._s3fs",
    "pyarrow._gcsfs",
    "pyarrow._azurefs",
    "pyarrow._hdfs",
}


def test_a_broker_imports_nothing_that_it_has_no_use_for():
    said = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, check=True, text=True).stdout
    assert set(said.split()) & NEEDLESS == set()


@pytest.mark.skipif(sys.platform != "linux", reason="the page faults of glibc are counted")
def test_freed_memory_is_used_again():
    def faults(how: str) -> int:
        return int(subprocess.run([sys.executable, "-c", BUFFERS, how], capture_output=True, check=True).stdout)

    # 16 MiB are 4096 pages, which are faulted in once or in each of 20 rounds.
    assert faults("kept") < 3 * 4096 < faults("given back")


@pytest.mark.skipif(sys.platform != "linux", reason="the heap of glibc is looked at")
def test_all_threads_of_a_broker_and_arrow_share_one_heap():
    said = subprocess.run([sys.executable, "-c", STARTED], capture_output=True, check=True, text=True).stdout
    kilobytes, pool = said.split()
    assert int(kilobytes) > 80 * 1024
    assert pool == "system"


SMAPS = """\
1000-3000 r-xp 00000000 fe:00 12                 /lib/clean code.so
Size:                  8 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
3000-4000 r-xp 00000000 fe:00 12                 /lib/patched.so
Anonymous:             4 kB
4000-5000 rw-p 00000000 fe:00 12                 /lib/data.so
Anonymous:             0 kB
5000-6000 r-xp 00000000 00:00 0                  [vdso]
Anonymous:             0 kB
6000-7000 r-xp 00000000 00:00 0
Anonymous:             0 kB
"""


def test_only_clean_code_of_files_is_given_back():
    assert code_areas(SMAPS) == [(0x1000, 0x3000)]
