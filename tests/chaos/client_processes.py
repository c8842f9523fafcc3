"""The clients of one topic as processes: writers, readers and members of a group, with their logs in one folder."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from smq_storage.object_store.store import StoreSettings
from support.client_logs.progress import Progress
from support.client_logs.records import log_path, next_run
from support.waiting import HANG_GUARD, eventually

HERE = Path(__file__).parent
GROUP = "group"
NAMESPACE = "default"
LATE, LATE_POLLS = "late", 10
"""A member that starts when all others have ended; what they have committed is not given to it in LATE_POLLS polls."""
# Seconds without anything new, after which readers are not waited for any longer: the checker says what is missing.
STALLED = 60.0

Start = Callable[[Sequence[str]], "subprocess.Popen[bytes]"]


def on_this_machine(command: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command)


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.send_signal(signal.SIGTERM)
    for process in processes:
        process.wait(HANG_GUARD)


class ClientProcesses:
    """``start`` runs a command, such as in a network namespace. Not thread-safe, apart from faults of its clients."""

    def __init__(self, folder: Path, leader: str, topic: str, start: Start = on_this_machine) -> None:
        self.folder = folder
        self.topic = topic
        self._leader = leader
        self._start = start
        self._writer_arguments: dict[str, tuple[object, ...]] = {}
        self.writers: dict[str, subprocess.Popen[bytes]] = {}
        self._writer_logs: dict[str, Path] = {}
        self.replaced: list[subprocess.Popen[bytes]] = []
        self.members: dict[str, subprocess.Popen[bytes]] = {}
        self.readers: dict[str, subprocess.Popen[bytes]] = {}
        self.progress = Progress(folder)

    # ---- starting

    def start_writer(self, name: str, per_second: int, *, with_id: bool = False) -> None:
        arguments = ("writer_process.py", self._leader, self.topic, name, per_second, self.folder / "writers")
        self._writer_arguments[name] = (*arguments, "id") if with_id else arguments
        self.continue_writer(name)

    def continue_writer(self, name: str) -> None:
        """Starts the next run; the one before, if it lives, is fenced by it."""
        before = self.writers.get(name)
        if before is not None:
            self.replaced.append(before)
        logs = self.folder / "writers"
        self._writer_logs[name] = log_path(logs, name, next_run(logs, name))
        self.writers[name] = self._run(*self._writer_arguments[name])

    def has_sent(self, name: str) -> bool:
        """Whether the present run of this writer has sent anything. Before that it may not have claimed its id."""
        log = self._writer_logs[name]
        return log.exists() and log.stat().st_size > 0

    @property
    def writers_with_id(self) -> list[str]:
        return sorted(name for name, arguments in self._writer_arguments.items() if arguments[-1] == "id")

    def start_reader(self, name: str) -> None:
        folder = self.folder / "readers"
        self.readers[name] = self._run("reader_process.py", self._leader, self.topic, name, folder)

    def start_member(self, name: str) -> None:
        """Starts a member, or its next run if it was killed."""
        folder = self.folder / "groups" / GROUP
        self.members[name] = self._run("member_process.py", self._leader, self.topic, GROUP, name, folder)

    def _run(self, script: str, *arguments: object) -> subprocess.Popen[bytes]:
        return self._start([sys.executable, str(HERE / script), *map(str, arguments)])

    # ---- waiting

    def wait_for_acks(self) -> None:
        """Every writer gets further acks."""
        before = {name: self.progress.acked(name) for name in self.writers}
        eventually(
            lambda: all(self.progress.acked(name) > count for name, count in before.items()),
            what=f"further acks for every writer of {self.topic}",
            pause=0.1,
        )

    def finish(self) -> None:
        """Ends the writers when all has an outcome, lets a fresh reader read, and ends all when they were given it."""
        for process in self.writers.values():
            process.send_signal(signal.SIGTERM)
        for process in [*self.writers.values(), *self.replaced]:
            process.wait(3 * HANG_GUARD)
        self.start_reader("fresh")
        self._wait_for_readers()
        end([*self.readers.values(), *self.members.values()])
        if self.members:
            self.start_member(LATE)
            eventually(lambda: self.progress.polls(LATE) >= LATE_POLLS, what="a late member polls", pause=0.2)
            end([self.members[LATE]])

    def _wait_for_readers(self) -> None:
        """Until every reader, and the group together, was given all that was acked; or nothing new comes any more."""
        changed = time.monotonic()
        before = -1
        while time.monotonic() - changed < STALLED:
            given = self.progress.delivered()
            if self.progress.complete(self.readers, with_group=bool(self.members)):
                return
            if given != before:
                before, changed = given, time.monotonic()
            time.sleep(0.5)
        print(f"{self.topic}: nothing new for readers for {STALLED:.0f} s, and they were not given everything")

    def check(self, store: StoreSettings, uid: str) -> None:
        """Runs the checker over what was written down; nothing may be lost. The chunks are one more reader's log.

        All brokers must have ended in good order, so that the chunks in the filer are complete.
        """
        root = f"{store.url.removeprefix('s3://')}/{NAMESPACE}/{self.topic}/{uid}"
        reader = [sys.executable, str(HERE / "chunk_reader.py"), str(store.endpoint), root]
        subprocess.run([*reader, str(self.folder / "readers")], check=True)
        self.check_logs("--complete")

    def check_logs(self, *arguments: str) -> None:
        """Runs the checker with these arguments over what was written down."""
        command = [sys.executable, str(HERE / "checker.py"), str(self.folder), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        print(f"{self.topic}: {' '.join(done.stdout.split())}", flush=True)
        assert done.returncode == 0, f"see {self.folder}\n{done.stdout}{done.stderr}"

    def kill(self) -> None:
        """Ends whatever still runs."""
        everything = [*self.writers.values(), *self.replaced, *self.readers.values(), *self.members.values()]
        for process in everything:
            if process.poll() is None:
                process.kill()
        for process in everything:
            process.wait()
