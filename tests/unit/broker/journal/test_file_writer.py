"""Small writes keep the interpreter's lock, unless the disk is slow."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from smq_broker.journal.file_writer import RELEASE_FOR_SECONDS, SLOW_SECONDS, SMALL_BYTES, FileWriter

COUNT_SWITCHES = """
import os, sys, threading, time
from smq_broker.journal.file_writer import write_with_lock
sys.setswitchinterval(1000)  # so no thread loses the lock unless it gives it up
count = 0
def run():
    global count
    while True:
        count += 1
        time.sleep(0)
threading.Thread(target=run, daemon=True).start()
while not count:
    time.sleep(0.001)
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
buffers = [memoryview(b"some bytes")]
before = count
for at in range(10_000):
    write_with_lock(fd, buffers, at)
print(count - before)
"""


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


def views(*parts: bytes) -> list[memoryview]:
    return [memoryview(part) for part in parts]


@pytest.mark.parametrize("size", [4, SMALL_BYTES, SMALL_BYTES + 1])
def test_all_buffers_are_written_at_the_offset(fd: int, size: int) -> None:
    parts = [b"a\0", os.urandom(size - 3), b"c"]
    assert FileWriter().write(fd, views(*parts), 100) == size
    assert os.pread(fd, size + 200, 0) == bytes(100) + b"".join(parts)


@pytest.mark.parametrize("size", [1, SMALL_BYTES + 1])
def test_errors_are_those_of_the_system(size: int) -> None:
    with Path("/dev/full").open("wb", buffering=0) as full, pytest.raises(OSError) as raised:
        FileWriter().write(full.fileno(), views(bytes(size)), 0)
    assert (raised.value.errno, raised.value.strerror) == (errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_no_other_thread_runs_during_a_small_write(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", COUNT_SWITCHES, str(tmp_path / "file")], check=True, capture_output=True, text=True
    )
    assert ran.stdout == "0\n"


class Disk:
    """Records how each write was done. A write takes ``seconds``, and fails with ``error`` if there is one."""

    def __init__(self) -> None:
        self.now = 0.0
        self.seconds = 0.0
        self.error: OSError | None = None
        self.kept_lock: list[bool] = []
        self.writer = FileWriter(
            lambda _, buffers, __: self._write(buffers, True),
            lambda _, buffers, __: self._write(buffers, False),
            lambda: self.now,
        )

    def _write(self, buffers: Sequence[memoryview], kept_lock: bool) -> int:
        self.now += self.seconds
        self.kept_lock.append(kept_lock)
        if self.error is not None:
            raise self.error
        return sum(map(len, buffers))

    def write(self, size: int = 1) -> bool:
        """Whether a write of this size kept the lock."""
        assert self.writer.write(0, views(bytes(size)), 0) == size
        return self.kept_lock[-1]


def test_large_writes_release_the_lock() -> None:
    disk = Disk()
    assert disk.write(SMALL_BYTES) and not disk.write(SMALL_BYTES + 1)


def test_after_a_slow_write_all_writes_release_the_lock_for_a_while() -> None:
    disk = Disk()
    disk.seconds = SLOW_SECONDS * 2
    assert disk.write() and not disk.write()
    disk.seconds = 0.0
    assert not disk.write()
    disk.now += RELEASE_FOR_SECONDS
    assert disk.write() and disk.write()


def test_a_write_that_fails_slowly_is_a_slow_one() -> None:
    disk = Disk()
    disk.seconds, disk.error = SLOW_SECONDS * 2, OSError(errno.EIO, "Input/output error")
    with pytest.raises(OSError):
        disk.write()
    disk.error = None
    assert not disk.write()


def test_a_slow_large_write_says_nothing_of_small_ones() -> None:
    disk = Disk()
    disk.seconds = SLOW_SECONDS * 2
    assert not disk.write(SMALL_BYTES + 1)
    disk.seconds = 0.0
    assert disk.write()
