"""A stream from topic to topic whose drivers, executors and Python workers are killed, and the proof of its result."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from smq_core.errors import SmqError
from support.processes.local_cluster import LocalCluster
from support.spark import copy_program
from support.waiting import eventually

SOURCE, TARGET = "copy-source", "copy-target"
KEYS = 16
MAX_SEGMENTS = 8
FAILED_RESTARTS = 10


class Driver:
    """A separate process group: the driver, its executors and their Python workers."""

    def __init__(self, master: str, leader: str, folder: Path, number: int) -> None:
        self.log = folder / f"driver-{number}.log"
        words = [sys.executable, copy_program.__file__, master, leader, SOURCE, TARGET, str(folder / "checkpoint")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log, env=environment, start_new_session=True)

    @property
    def lives(self) -> bool:
        return self.process.poll() is None

    def signal(self, what: signal.Signals) -> None:
        """To all its processes; executors have their own groups."""
        for process in self._descendants():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(what)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, what)

    def kill(self) -> None:
        """kill -9 of everything. What an ended driver leaves behind ends by itself."""
        if self.lives:
            self.signal(signal.SIGKILL)
        self.process.wait()

    def kill_one(self, word: str, dice: random.Random) -> bool:
        """kill -9 of one process that has this word in its command. False if there is none."""
        found = []
        for process in self._descendants():
            with suppress(psutil.Error):
                if any(word in part for part in process.cmdline()):
                    found.append(process)
        if not found:
            return False
        with suppress(psutil.NoSuchProcess):
            dice.choice(found).kill()
        return True

    def _descendants(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []


class Copying:
    """Use as a context manager. Each round sends messages, changes segments, and does one thing to the drivers."""

    def __init__(self, cluster: LocalCluster, folder: Path, master: str, seed: int, rows_per_round: int) -> None:
        self._cluster = cluster
        self._folder = folder
        self._master = master
        self._dice = random.Random(seed)
        self._rows = rows_per_round
        self._drivers: list[Driver] = []
        self._sent = 0
        self._found_at_restart = 0
        self._failed_restarts = 0
        self.found: Counter[bytes] = Counter()
        self.done: Counter[str] = Counter()
        self.faults: dict[str, Callable[[], None]] = {
            "driver": self._kill_driver,
            "second driver": self._start_second_driver,
            "python worker": lambda: self._kill_one("pyspark.daemon"),
            "executor": lambda: self._kill_one("CoarseGrainedExecutorBackend"),
        }

    def __enter__(self) -> Copying:
        self._folder.mkdir()
        for name in (SOURCE, TARGET):
            self._cluster.create(name, segments={"min": 2, "max": MAX_SEGMENTS})
        self._client = self._cluster.connect()
        self._producer = self._client.producer(SOURCE)
        self._consumer = self._client.consumer(TARGET, start="earliest")
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        for driver in self._drivers:
            driver.kill()
        self._client.close()

    def round(self, fault: str) -> None:
        """Returns when all that was sent has arrived, once."""
        for _ in range(2):
            self._send(self._rows // 2)
            self._split_or_merge()
        wanted = self._sent - self._dice.randrange(1, self._rows)
        self._wait_for(wanted)
        self.faults[fault]()
        self.done[fault] += 1
        self._wait_for(self._sent)

    def finish(self) -> None:
        """Raises AssertionError unless every row is there once."""
        # A last message of each key is behind everything that the drivers have published before.
        self._send(KEYS)
        self._wait_for(self._sent)
        expected = Counter(b"%d" % number for number in range(self._sent))
        doubled = {value: count for value, count in self.found.items() if count > 1}
        assert not doubled, f"{len(doubled)} rows more than once: {dict(list(doubled.items())[:5])}"
        assert self.found == expected

    # ---- what happens

    def _kill_driver(self) -> None:
        self._driver.kill()
        self._start()

    def _kill_one(self, word: str) -> None:
        eventually(lambda: self._driver.kill_one(word, self._dice), what=f"a process with {word} in its command")

    def _start_second_driver(self) -> None:
        """The first one is paused while the second takes over; then both run, until the first one notices."""
        first = self._driver
        first.signal(signal.SIGSTOP)
        self._start()
        self._send(self._rows)
        self._wait_for(self._sent)
        first.signal(signal.SIGCONT)

        def first_ended() -> bool:
            self._send(KEYS)
            self._wait_for(self._sent)
            return not first.lives

        eventually(first_ended, what=f"the query of the first driver fails; see {first.log}", pause=0.5)

    # ---- how

    @property
    def _driver(self) -> Driver:
        return self._drivers[-1]

    def _start(self) -> None:
        self._drivers.append(Driver(self._master, self._cluster.address, self._folder, len(self._drivers)))

    def _restart(self) -> None:
        """As an operator of Spark does it with a failed query. Fails the test if the queries get nowhere."""
        if self._found_at_restart == len(self.found):
            self._failed_restarts += 1
        else:
            self._failed_restarts = 0
        self._found_at_restart = len(self.found)
        if self._failed_restarts >= FAILED_RESTARTS:
            pytest.fail(
                f"{FAILED_RESTARTS} drivers in turn ended without a new row; the last said:\n{self._end_of_log()}"
            )
        self.done["restart"] += 1
        self._start()

    def _end_of_log(self) -> str:
        return self._driver.log.read_text(errors="replace")[-4000:]

    def _send(self, count: int) -> None:
        for number in range(self._sent, self._sent + count):
            self._producer.send(b"%d" % number, key=b"k%d" % (number % KEYS))
        self._producer.flush(300)
        self._sent += count

    def _split_or_merge(self) -> None:
        admin = self._client.admin()
        segments = admin.segments(SOURCE)
        try:
            if len(segments) >= MAX_SEGMENTS - 1 or (len(segments) > 2 and self._dice.random() < 0.4):
                admin.merge(SOURCE, [it.name for it in segments[:2]])
            else:
                admin.split(SOURCE, max(segments, key=lambda it: it.stop - it.start).name)
        except SmqError as error:
            print(f"no change of segments: {error.message}")

    def _wait_for(self, rows: int) -> None:
        def arrived() -> bool:
            for batch in iter(lambda: self._consumer.poll(0.2), None):
                self.found.update(batch.table.column("value").to_pylist())
            if not self._driver.lives:
                self._restart()
            return len(self.found) >= rows

        eventually(arrived, what=f"{rows} rows in {TARGET}, see {self._driver.log}")
