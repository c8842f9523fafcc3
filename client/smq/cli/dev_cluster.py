"""Runs SeaweedFS and a leader with its brokers as child processes, for `smq dev` and the demo.

The leader is started as a program and not imported, because the client does not depend on the operator's code.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING

from smq_core.errors import InvalidRequest, SmqError, Unavailable
from smq_storage.process.seaweedfs import SeaweedProcess
from smq_storage.process.shutdown import Shutdown

if TYPE_CHECKING:
    import psutil  # comes with the extra `local`, which start() checks for

LEADER_STOP_TIMEOUT_SECONDS = 45.0
BROKER_STOP_TIMEOUT_SECONDS = 15.0
SEAWEED_STOP_TIMEOUT_SECONDS = 20.0
START_TIME_TOLERANCE_SECONDS = 2.0
"""A process's start time shifts when the machine's clock is corrected."""

INCARNATION_VARIABLE = "SMQ_INCARNATION"
"""The leader sets this in the environment of each broker that it starts."""


class DevFolderInUse(SmqError):
    """Another process uses the same folder."""


class StopIncomplete(SmqError):
    """Some step of the shutdown failed. All other steps were carried out."""


@dataclass(slots=True)
class _Leftovers:
    """What runs of an earlier `smq dev` that was killed. ``ports`` are those of its SeaweedFS."""

    leader: psutil.Process | None = None
    seaweed: psutil.Process | None = None
    brokers: list[psutil.Process] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)

    @property
    def writers(self) -> list[int]:
        """The processes that may hold messages which are not in SeaweedFS yet."""
        leader = [self.leader] if self.leader is not None else []
        return [process.pid for process in (*leader, *self.brokers)]


class DevCluster:
    """A whole system on this machine. Its data stays in ``folder`` after it ends.

    ``listen`` is the leader's host:port (port 0 means a free one); ``more`` are flags for the leader. Use it as a
    context manager, or call ``start`` and ``stop``; ``stop`` may be called at any time, even after a failed start. Only
    one cluster may use a folder at a time.
    """

    def __init__(
        self,
        folder: Path,
        *,
        listen: str = "127.0.0.1:7070",
        brokers: int = 3,
        max_brokers: int | None = None,
        more: Sequence[str] = (),
    ) -> None:
        self.folder = folder.resolve()
        self.brokers = brokers
        self.max_brokers = max_brokers
        self._leader_args = tuple(more)
        self._listen = listen
        self.address = listen
        self.http = "127.0.0.1:0"
        self.seaweed = SeaweedProcess(self.folder / "seaweedfs")
        self._leader: subprocess.Popen[bytes] | None = None
        self._lock: IO[str] | None = None

    @property
    def page(self) -> str:
        """The URL of the leader's page for people."""
        return f"http://{self.http}/"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def leader_log(self) -> Path:
        return self.logs / "leader.log"

    def start(self, on_progress: Callable[[str], None] = lambda _: None) -> None:
        """Starts every process; the leader may need a moment until it answers.

        What is left over of a `smq dev` that was killed comes first: its brokers get their SeaweedFS back, write what
        they hold, and end or are taken over by the new leader.

        Raises DevFolderInUse, InvalidRequest (the port), Unavailable (SeaweedFS or the leader cannot be started, or
        leftover brokers cannot write what they hold).
        """
        if find_spec("smq_operator") is None or find_spec("smq_broker") is None:
            raise Unavailable("the leader and the brokers are not installed; run: pip install 'seaweedmq[local]'")
        self.logs.mkdir(parents=True, exist_ok=True)
        self._lock_folder()
        self._end_leftover_processes(on_progress)
        self.address = _free_address(self._listen)
        self.http = _free_address("127.0.0.1:0")
        if self.seaweed.pid is None:
            _report_progress(on_progress, "starting SeaweedFS")
            self.seaweed.start()
        self._record_processes()
        _report_progress(on_progress, "starting the leader and its brokers")
        self._start_leader()
        self._record_processes()

    def wait_ready(self, timeout: float = 90.0) -> None:
        """Waits until all brokers have reported to the leader. Raises Unavailable."""
        import smq

        deadline = time.monotonic() + timeout
        alive, cause = 0, ""
        with smq.connect(self.address, timeout=2.0) as client:
            while time.monotonic() < deadline:
                if failure := self.failure():
                    raise Unavailable(failure)
                try:
                    alive = sum(b.state == "alive" for b in client.admin().brokers())
                except Unavailable as error:
                    cause = f": {error.message}"
                if alive >= self.brokers:
                    return
                time.sleep(0.1)
        raise Unavailable(
            f"after {timeout:.0f} s {alive} of {self.brokers} brokers are alive{cause}; the logs are in {self.logs}"
        )

    def stop(self, on_progress: Callable[[str], None] = lambda _: None) -> None:
        """Ends the processes in order: the leader with its brokers, then SeaweedFS. The data stays.

        Every step is carried out, even if one before it fails. Raises StopIncomplete at the end.
        """
        if self._lock is None:
            return  # nothing was started here; the folder may be another cluster's
        shutdown = Shutdown(lambda step, error: _report_progress(on_progress, f"{step} failed: {error}"))
        shutdown.run("stopping the leader", lambda: self._stop_leader_process(on_progress))
        if self.seaweed.pid is not None:
            shutdown.run("stopping the brokers", lambda: self._end_orphaned_brokers(on_progress))
            _report_progress(on_progress, "stopping SeaweedFS")
        shutdown.run("stopping SeaweedFS", lambda: self.seaweed.stop(SEAWEED_STOP_TIMEOUT_SECONDS))
        shutdown.run("removing the list of processes", self._forget_processes)
        shutdown.run("releasing the folder", self._lock.close)
        self._lock = None
        if shutdown.failed is not None:
            raise StopIncomplete(f"not everything stopped in order: {shutdown.failed}. The logs are in {self.logs}")

    def stop_leader(self, on_progress: Callable[[str], None] = lambda _: None) -> None:
        """Ends the leader, which ends its brokers; SeaweedFS keeps running. Raises StopIncomplete."""
        if self._leader is not None:
            self._stop_leader_process(on_progress)
            self._end_orphaned_brokers(on_progress)

    def _stop_leader_process(self, on_progress: Callable[[str], None]) -> None:
        if self._leader is None:
            return
        _report_progress(on_progress, "stopping the leader and its brokers")
        leader, self._leader = self._leader, None
        if _terminate(leader, LEADER_STOP_TIMEOUT_SECONDS):
            _report_progress(
                on_progress, f"the leader did not end in {LEADER_STOP_TIMEOUT_SECONDS:.0f} s and was killed"
            )

    def failure(self) -> str | None:
        """Describes a process that ended unexpectedly, with the end of its log; None while all run."""
        if self._leader is not None and (code := self._leader.poll()) is not None:
            return f"the leader ended (exit code {code}); {self.leader_log} ends with:\n{_last_lines(self.leader_log)}"
        if self.seaweed.pid is None:
            return f"SeaweedFS ended; {self.seaweed.log} ends with:\n{_last_lines(self.seaweed.log)}"
        return None

    def __enter__(self) -> DevCluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start_leader(self) -> None:
        store = self.seaweed.settings()
        command = [sys.executable, "-m", "smq_operator.main", "local"]
        command += ["--dir", str(self.folder), "--listen", self.address, "--http", self.http]
        command += ["--brokers", str(self.brokers)]
        if self.max_brokers is not None:
            command += ["--max-brokers", str(self.max_brokers)]
        command += ["--filer-url", store.url, "--filer-endpoint", store.endpoint or "", *self._leader_args]
        # This SeaweedFS needs no credentials. Settings in the environment may be meant for another store.
        env = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SMQ_"))}
        with self.leader_log.open("ab") as log:
            # Its own session, because Ctrl-C in the terminal is for `smq dev`, which then stops everything in order.
            self._leader = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True
            )

    def _end_orphaned_brokers(self, on_progress: Callable[[str], None]) -> None:
        """Ends the brokers of a leader that was killed. They would otherwise run until a new leader adopts them."""
        brokers = self._living_brokers()
        if brokers:
            _report_progress(
                on_progress, f"the leader left {len(brokers)} brokers behind: they write what they hold, and end"
            )
        killed = _terminate_processes(brokers, BROKER_STOP_TIMEOUT_SECONDS)
        if killed:
            raise StopIncomplete(
                f"brokers did not end in {BROKER_STOP_TIMEOUT_SECONDS:.0f} s and were killed (processes "
                f"{', '.join(map(str, killed))}); acked messages that they had not written yet are lost. At the next "
                "start the condition DataLoss of their topics says which"
            )

    def _living_brokers(self) -> list[psutil.Process]:
        """The brokers of this folder that run, by their records."""
        found = []
        for path in sorted((self.folder / "brokers").glob("*.json")):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                record = json.loads(path.read_text())
                if record["pid"] is not None:
                    broker = _find_broker(record["pid"], record["incarnation"])
                    if broker is not None and _is_alive(broker):
                        found.append(broker)
        return found

    # ---- locking, and cleaning up after a crash

    @property
    def _process_file(self) -> Path:
        return self.folder / "dev.json"

    def _lock_folder(self) -> None:
        lock = (self.folder / "dev.lock").open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            owner = lock.read().strip()
            lock.close()
            raise DevFolderInUse(
                f"{self.folder} is in use by another `smq dev` (process {owner}). "
                f"Stop that one, or choose another folder with --dir"
            ) from None
        lock.seek(0)
        lock.truncate()
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock

    def _record_processes(self) -> None:
        """Records the processes, so that the next start can end them if this one is killed."""
        import psutil

        record: dict[str, object] = {"seaweedfs_ports": list(self.seaweed.ports)}
        for name, pid in (("leader", self._leader.pid if self._leader else None), ("seaweedfs", self.seaweed.pid)):
            if pid is not None:
                with contextlib.suppress(psutil.NoSuchProcess):
                    record[name] = [pid, psutil.Process(pid).create_time()]
        temporary = self._process_file.with_suffix(".tmp")
        temporary.write_text(json.dumps(record))
        temporary.replace(self._process_file)

    def _forget_processes(self) -> None:
        """Removes the list, unless the next start needs it for what still runs."""
        if not self._leftovers().writers:
            self._process_file.unlink(missing_ok=True)

    def _leftovers(self) -> _Leftovers:
        found = _Leftovers(brokers=self._living_brokers())
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            record = json.loads(self._process_file.read_text())
            found.ports = [int(port) for port in record["seaweedfs_ports"]]
            found.leader = _find_recorded(record.get("leader"))
            found.seaweed = _find_recorded(record.get("seaweedfs"))
        return found

    def _end_leftover_processes(self, on_progress: Callable[[str], None]) -> None:
        """Ends them in order: the brokers write what they hold while their SeaweedFS runs. Raises Unavailable."""
        left = self._leftovers()
        if left.writers and left.seaweed is None:
            if not self.seaweed.reuse_ports(left.ports):
                raise Unavailable(
                    f"processes of a `smq dev` that was killed still run ({', '.join(map(str, left.writers))}) and may "
                    "hold messages that are not written yet, but the ports of their SeaweedFS are in use or not known "
                    f"({', '.join(map(str, left.ports)) or 'unknown'}). Free these ports and start again; or end those "
                    "processes, which loses such messages"
                )
            _report_progress(
                on_progress, "starting SeaweedFS for the brokers left over from a `smq dev` that was killed"
            )
            self.seaweed.start()
            self._record_processes()
        if left.leader is not None:
            _report_progress(
                on_progress, f"ending process {left.leader.pid}, left over from a `smq dev` that was killed"
            )
            if _terminate_processes([left.leader], LEADER_STOP_TIMEOUT_SECONDS):
                _report_progress(on_progress, f"process {left.leader.pid} did not end in time and was killed")
        if left.seaweed is not None:
            # Brokers without a leader stay until the new one takes them over. They find the new SeaweedFS at its ports.
            _report_progress(
                on_progress, f"ending process {left.seaweed.pid}, left over from a `smq dev` that was killed"
            )
            _terminate_processes([left.seaweed], SEAWEED_STOP_TIMEOUT_SECONDS)
            if not self.seaweed.reuse_ports(left.ports) and self._living_brokers():
                raise Unavailable(
                    "the ports of the former SeaweedFS are in use by another process: free them, start again"
                )


def _free_address(listen: str) -> str:
    """Returns the address, with a free port for port 0. Raises InvalidRequest if it is invalid or in use."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise InvalidRequest(f"an address must be host:port, such as 127.0.0.1:7070, not {listen!r}")
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, int(port)))
            return f"{host}:{probe.getsockname()[1]}"
    except (OSError, OverflowError) as error:
        detail = error.strerror if isinstance(error, OSError) else "there is no such port"
        raise InvalidRequest(
            f"cannot listen on {listen} ({detail}). "
            "If another `smq dev` uses this address, stop it, or choose another address with --listen"
        ) from None


def _find_process(pid: int, created: float) -> psutil.Process | None:
    """The process with this id if it is still the one that started then, because pids are reused."""
    import psutil

    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - created) < START_TIME_TOLERANCE_SECONDS
    except psutil.Error:
        return None
    return process if same else None


def _find_recorded(recorded: object) -> psutil.Process | None:
    """The process of an entry ``[pid, created]`` of the list of processes, if it runs."""
    if not isinstance(recorded, list):
        return None
    process = _find_process(*recorded)
    return process if process is not None and _is_alive(process) else None


def _find_broker(pid: int, incarnation: str) -> psutil.Process | None:
    """The process with this id if it is the broker of that incarnation."""
    import psutil

    try:
        process = psutil.Process(pid)
        same = process.environ().get(INCARNATION_VARIABLE) == incarnation
    except psutil.Error:
        return None
    return process if same else None


def _is_alive(process: psutil.Process) -> bool:
    import psutil

    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _terminate(process: subprocess.Popen[bytes], timeout: float) -> bool:
    """Ends a child. True if it had to be killed."""
    process.terminate()
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True
    return False


def _terminate_processes(processes: Sequence[psutil.Process], timeout: float) -> list[int]:
    """Ends processes that are no children of this one, together. Returns those that were killed after ``timeout``."""
    import psutil

    deadline, killed = time.monotonic() + timeout, []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            # Only one SIGTERM, because a second one makes the leader and the brokers stop at once.
            process.terminate()
    for process in processes:
        while _is_alive(process):
            if time.monotonic() > deadline:
                if process.pid not in killed:
                    killed.append(process.pid)
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            time.sleep(0.1)
    return killed


def _report_progress(on_progress: Callable[[str], None], text: str) -> None:
    """Reports progress. Nothing that tells a person something may stop what is under way."""
    with contextlib.suppress(Exception):
        on_progress(text)


def _last_lines(path: Path, count: int = 8) -> str:
    with contextlib.suppress(OSError):
        return "\n".join(path.read_text(errors="replace").splitlines()[-count:])
    return ""
