"""Programs that send and read without a pause, each with another client of Kafka, and what they have seen.

A program gets ``bootstrap topic name per_second group``. Its first line of input ends the producer, the second one the
program. It prints ``A key value partition offset microseconds`` for each ack, ``R key value partition offset`` for each
message that its group reads, ``J`` when it is assigned partitions, ``F message`` for a failure, ``stopped sent failed``
and ``ended``.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from integration.kafka.java_tools import PEERS, jars
from support.waiting import HANG_GUARD, eventually

HERE = Path(__file__).parent
JAVA_FLAGS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

# Key, value, partition, offset.
Seen = tuple[str, str, int, int]


class SteadyClient:
    """One program. ``acked`` and ``read`` are in the order in which they came, ``micros`` belongs to ``acked``."""

    def __init__(self, name: str, command: Sequence[str], log: Path, *, has_group: bool) -> None:
        self.name = name
        self.has_group = has_group
        self.acked: list[Seen] = []
        self.micros: list[int] = []
        self.read: list[Seen] = []
        self.assigned_at: list[int] = []
        """How much had been read when partitions were assigned. After that what was not committed comes again."""
        self.failures: list[str] = []
        self.sent: int | None = None
        """None until it has stopped."""
        self._ended = False
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def longest_micros(self) -> int:
        """The longest time from a send to its ack."""
        return max(self.micros)

    def stop_producing(self) -> None:
        """Returns when everything that was sent is acked or has failed."""
        self._send()
        eventually(lambda: self.sent is not None, what=f"{self.name} has flushed")

    def end(self) -> None:
        """Returns when the member has left its group, with its offsets committed."""
        self._send()
        self._thread.join(HANG_GUARD)
        assert self._ended, f"{self.name} has not ended"
        self._process.wait(HANG_GUARD)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _send(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def _follow(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, *words = line.split()
            if kind == "A":
                self.acked.append((words[0], words[1], int(words[2]), int(words[3])))
                self.micros.append(int(words[4]))
            elif kind == "R":
                self.read.append((words[0], words[1], int(words[2]), int(words[3])))
            elif kind == "J":
                self.assigned_at.append(len(self.read))
            elif kind == "F":
                self.failures.append(line.strip())
            elif kind == "stopped":
                self.sent = int(words[0])
            elif kind == "ended":
                self._ended = True


def java() -> list[str]:
    logging = f"-Dlog4j2.configurationFile={os.environ.get('KPROOF_LOG4J', PEERS / 'log4j2.properties')}"
    return ["java", *JAVA_FLAGS, logging, "-cp", f"{jars()}/*", str(HERE / "java" / "Steady.java")]


def librdkafka() -> list[str]:
    return [sys.executable, str(HERE / "steady_librdkafka.py")]


def franz(folder: Path) -> list[str]:
    """Builds the program, which takes a minute the first time. Skips the test where there is no Go."""
    if os.environ.get("CI") or shutil.which("go") is None:
        pytest.skip("the program is built with Go: apt install golang")
    program = folder / "steady"
    command = ["go", "build", "-o", str(program), "./steady"]
    subprocess.run(command, cwd=HERE / "go_clients", check=True, timeout=600)
    return [str(program)]


def check_clients(clients: Sequence[SteadyClient], log: Sequence[Seen]) -> None:
    """``log`` is all that the topic has, in the order of each partition's offsets. Every message that was sent is there
    once, where its ack said, in the order of its key. Every group has read every message in its order, and none twice
    unless its partitions were assigned anew.
    """
    for client in clients:
        assert not client.failures, (client.name, client.failures[:3])
        assert client.sent == len(client.acked) == len({it[1] for it in client.acked}), client.name
    offsets: dict[int, list[int]] = defaultdict(list)
    numbers: dict[str, list[int]] = defaultdict(list)
    for key, value, partition, offset in log:
        offsets[partition].append(offset)
        numbers[key].append(int(value.rpartition(":")[2]))
    for partition, found in offsets.items():
        assert found == list(range(len(found))), f"the offsets of partition {partition} are not dense"
    for key, sent in numbers.items():
        assert all(one < other for one, other in itertools.pairwise(sent)), f"{key} is not in order"
    acked = [it for client in clients for it in client.acked]
    assert len(log) == len(acked) and set(log) == set(acked)
    for client in clients:
        if client.has_group:
            _check_read(client, log)


def _check_read(client: SteadyClient, log: Sequence[Seen]) -> None:
    missing = set(log) - set(client.read)
    assert not missing, f"{client.name} has not read {len(missing)}: {sorted(missing)[:3]}"
    assert set(client.read) == set(log), f"{client.name} has read what is not in the log"
    following: dict[int, int] = defaultdict(int)
    known: set[int] = set()
    """The partitions that were read since they were assigned."""
    for number, (_, _, partition, offset) in enumerate(client.read):
        if number in client.assigned_at:
            known.clear()
        expected = following[partition]
        is_next = offset == expected if partition in known else offset <= expected
        assert is_next, f"{client.name} has read {offset} of partition {partition} instead of {expected}"
        known.add(partition)
        following[partition] = offset + 1
