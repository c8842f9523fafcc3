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
from typing import IO

from smq.cli.dev.private_folder import LOCK, make_private
from smq.cli.dev_folder import (
    PROCESS_FILE,
    RECORD,
    DevPorts,
    DevRecord,
    DevSecurity,
    forget_failure,
    options_of,
    read_record,
)
from smq.transport.security.security_files import SecurityOptions
from smq_core.errors import InvalidRequest, SmqError, Unavailable
from smq_core.model.addresses import join_address, split_address
from smq_storage.process.child_processes import end_child, end_processes, start_child
from smq_storage.process.extras import install_command
from smq_storage.process.listeners import address_family
from smq_storage.process.pids import FOLDER_VARIABLE, ProcessId, find_by_environment
from smq_storage.process.ports import are_free, free_ports
from smq_storage.process.seaweedfs import SeaweedProcess, find_weed
from smq_storage.process.shutdown_steps import Shutdown

LEADER_STOP_TIMEOUT_SECONDS = 45.0
BROKER_STOP_TIMEOUT_SECONDS = 15.0
SEAWEED_STOP_TIMEOUT_SECONDS = 20.0

# Of the extra `local`, whose distributions are not there after a plain installation.
_REQUIRED_MODULES = ("prometheus_client", "pydantic_settings", "ruamel.yaml")


class DevFolderInUse(SmqError):
    """Another process uses the same folder."""


class StopIncomplete(SmqError):
    """Some step of the shutdown failed. All other steps were carried out."""


@dataclass(slots=True)
class _Leftovers:
    """What runs of an earlier `smq dev` that was killed. ``ports`` are those of its SeaweedFS."""

    leader: ProcessId | None = None
    seaweed: ProcessId | None = None
    brokers: list[ProcessId] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)

    @property
    def writers(self) -> list[int]:
        """The processes that may hold messages which are not in SeaweedFS yet."""
        leader = [self.leader] if self.leader is not None else []
        return [process.pid for process in (*leader, *self.brokers)]


class DevCluster:
    """A whole system on this machine. Its data stays in ``folder`` after it ends.

    ``listen`` is the leader's host:port, and ``http`` that of its page; ``s3_port`` is SeaweedFS'. Ports that are 0 or
    not given are free ones, and those of the last time if they are free. With ``secure`` it lets in only who has a
    token. The first broker serves Kafka clients at ``kafka_port``, if that is given. ``more`` are flags for the leader.
    Use it as a context manager, or call ``start`` and ``stop``; ``stop`` may be called at any time, even after a failed
    start. Only one cluster may use a folder at a time.
    """

    def __init__(
        self,
        folder: Path,
        *,
        listen: str = "127.0.0.1:7070",
        brokers: int = 3,
        max_brokers: int | None = None,
        http: str | None = None,
        s3_port: int | None = None,
        secure: bool = False,
        kafka_port: int | None = None,
        more: Sequence[str] = (),
    ) -> None:
        self.folder = folder.resolve()
        self.brokers = brokers
        self.max_brokers = max_brokers
        self._secure = secure
        self._kafka = join_address("127.0.0.1", kafka_port) if kafka_port is not None else ""
        self._leader_args = (
            *more,
            *(("--security=required",) if secure else ()),
            *((f"--kafka={self._kafka}",) if self._kafka else ()),
        )
        self._listen = listen
        self.address = listen
        self._http = http
        self._s3_port = s3_port
        self.http = "127.0.0.1:0"
        self.seaweed = SeaweedProcess(self.folder / "seaweedfs", log=self.logs / "seaweedfs.log")
        self._leader: subprocess.Popen[bytes] | None = None
        self._lock: IO[str] | None = None
        self._ready = False

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
        check_installed()
        make_private(self.folder)
        self.logs.mkdir(exist_ok=True)
        self._lock_folder()
        forget_failure(self.folder)
        self._end_leftover_processes(on_progress)
        kept = DevPorts.read(self.folder)
        self.address = _free_address(self._listen, "--listen", kept.leader)
        self.http = _free_address(self._http or "127.0.0.1:0", "--http", kept.page)
        if self.seaweed.pid is None:
            self._choose_ports_of_seaweed(kept, on_progress)
            _report_progress(on_progress, "starting SeaweedFS")
            self.seaweed.start()
        self._record_processes()
        DevPorts(self.address, self.http, list(self.seaweed.ports)).write(self.folder)
        _report_progress(on_progress, "starting the leader and its brokers")
        self._start_leader()
        self._record_processes()

    def _choose_ports_of_seaweed(self, kept: DevPorts, on_progress: Callable[[str], None]) -> None:
        """Raises InvalidRequest if the S3 port that was chosen is in use."""
        if kept.seaweedfs and not self.seaweed.reuse_ports(kept.seaweedfs):
            _report_progress(on_progress, "SeaweedFS takes other ports, because a process has some of its former ones")
        if self._s3_port is not None and self._s3_port not in self.seaweed.ports and self._living_brokers():
            raise Unavailable(
                "brokers of a `smq dev` that was killed still run and know the former S3 port: start and stop once "
                "without --s3-port, so that they write what they hold"
            )
        if self._s3_port is not None and not self.seaweed.take_s3_port(self._s3_port):
            raise InvalidRequest(f"port {self._s3_port} is in use: choose another one with --s3-port")

    def wait_ready(self, timeout: float = 90.0) -> None:
        """Waits until all brokers have reported to the leader, and records that. Raises Unavailable."""
        import smq

        deadline = time.monotonic() + timeout
        alive, cause = 0, ""
        with smq.connect(self.address, timeout=2.0, **self._await_security(deadline)) as client:
            while time.monotonic() < deadline:
                if failure := self.failure():
                    raise Unavailable(failure)
                try:
                    alive = sum(b.state == "alive" for b in client.admin().brokers())
                except Unavailable as error:
                    cause = f": {error.message}"
                if alive >= self.brokers:
                    self._ready = True
                    self._record_processes()
                    return
                time.sleep(0.1)
        raise Unavailable(
            f"after {timeout:.0f} s {alive} of {self.brokers} brokers are alive{cause}; the logs are in {self.logs}"
        )

    @property
    def security(self) -> DevSecurity | None:
        """What clients need to connect; None if the cluster is open."""
        return DevSecurity(self.folder) if self._secure else None

    def _await_security(self, deadline: float) -> SecurityOptions:
        """The options of a client, when the leader has written the files. ``deadline`` is in monotonic seconds."""
        security = self.security
        if security is None:
            return {}
        while not (security.ca_file.exists() and security.token_file.exists()) and time.monotonic() < deadline:
            if failure := self.failure():
                raise Unavailable(failure)
            time.sleep(0.05)
        return options_of(security)

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
        if end_child(leader, LEADER_STOP_TIMEOUT_SECONDS):
            _report_progress(
                on_progress, f"the leader did not end in {LEADER_STOP_TIMEOUT_SECONDS:.0f} s and was killed"
            )

    def failure(self) -> str | None:
        """Describes a process that ended unexpectedly; None while all run."""
        if self._leader is not None and (code := self._leader.poll()) is not None:
            return f"the leader ended (exit code {code}); {self.leader_log} ends with:\n{last_lines(self.leader_log)}"
        if self.seaweed.pid is None:
            # Its log is not quoted, because it has mostly lines about parts that are not used here.
            return f"SeaweedFS ended (exit code {self.seaweed.exit_code}); its log is {self.seaweed.log}"
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
        self._leader = start_child(command, self.leader_log, environment=env)

    def _end_orphaned_brokers(self, on_progress: Callable[[str], None]) -> None:
        """Ends the brokers of a leader that was killed. They would otherwise run until a new leader adopts them."""
        brokers = self._living_brokers()
        if brokers:
            _report_progress(
                on_progress, f"the leader left {len(brokers)} brokers behind: they write what they hold, and end"
            )
        killed = end_processes(brokers, BROKER_STOP_TIMEOUT_SECONDS)
        if killed:
            raise StopIncomplete(
                f"brokers did not end in {BROKER_STOP_TIMEOUT_SECONDS:.0f} s and were killed (processes "
                f"{', '.join(map(str, killed))}); acked messages that they had not written yet are lost. At the next "
                "start the condition DataLoss of their topics says which"
            )

    def _living_brokers(self) -> list[ProcessId]:
        """The brokers of this folder that run."""
        found = [ProcessId.of(pid) for pid, _ in find_by_environment(FOLDER_VARIABLE, str(self.folder))]
        return [broker for broker in found if broker is not None]

    # ---- locking, and cleaning up after a crash

    @property
    def _process_file(self) -> Path:
        return self.folder / PROCESS_FILE

    def _lock_folder(self) -> None:
        lock = (self.folder / LOCK).open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            owner = lock.read().strip()
            lock.close()
            raise DevFolderInUse(
                f"{self.folder} is in use by another `smq dev` (process {owner}). "
                f"End that one with `smq dev stop --dir {self.folder}`, or choose another folder with --dir"
            ) from None
        lock.seek(0)
        lock.truncate()
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock

    def record(self) -> DevRecord:
        """What other commands find in the folder."""
        store, own = self.seaweed.settings(), ProcessId.of(os.getpid())
        assert own is not None
        return DevRecord(
            process=own,
            leader=self.address,
            brokers=self.brokers,
            max_brokers=self.max_brokers,
            filer_url=store.url,
            filer_endpoint=store.endpoint or "",
            page=self.page,
            ready=self._ready,
            secure=self._secure,
            kafka=self._kafka,
        )

    def _record_processes(self) -> None:
        """Records the processes, so that the next start can end them if this one is killed."""
        record: dict[str, object] = {"seaweedfs_ports": list(self.seaweed.ports), RECORD: self.record().to_json()}
        for name, pid in (("leader", self._leader.pid if self._leader else None), ("seaweedfs", self.seaweed.pid)):
            if pid is not None:
                record[name] = ProcessId.of(pid)
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
            if end_processes([left.leader], LEADER_STOP_TIMEOUT_SECONDS):
                _report_progress(on_progress, f"process {left.leader.pid} did not end in time and was killed")
        if left.seaweed is not None:
            # Brokers without a leader stay until the new one takes them over. They find the new SeaweedFS at its ports.
            _report_progress(
                on_progress, f"ending process {left.seaweed.pid}, left over from a `smq dev` that was killed"
            )
            end_processes([left.seaweed], SEAWEED_STOP_TIMEOUT_SECONDS)
            if not self.seaweed.reuse_ports(left.ports) and self._living_brokers():
                raise Unavailable(
                    "the ports of the former SeaweedFS are in use by another process: free them, start again"
                )


def find_running(folder: Path) -> DevRecord | None:
    """The `smq dev` that runs on this folder, as it is recorded; None if none does."""
    record = read_record(folder)
    return record if record is not None and record.process.is_alive else None


def ended_parts(folder: Path) -> list[str]:
    """What has ended of the `smq dev` that runs on this folder, so that it is about to stop everything."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        record = json.loads((folder / PROCESS_FILE).read_text())
        parts = (("SeaweedFS", record.get("seaweedfs")), ("the leader", record.get("leader")))
        return [name for name, process in parts if process is not None and _find_recorded(process) is None]
    return []


def _find_recorded(entry: object) -> ProcessId | None:
    """The process of an entry of the list of processes, if it runs."""
    process = ProcessId(*entry) if isinstance(entry, list) else None
    return process if process is not None and process.is_alive else None


def check_installed() -> None:
    """Raises Unavailable, before anything is made, if a part of the extra `local` is missing."""
    missing = [name for name in _REQUIRED_MODULES if not _is_installed(name)]
    if missing:
        raise Unavailable(
            f"`smq dev` needs the extra `local` ({', '.join(missing)} not found): {install_command('local')}"
        )
    find_weed()


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # of the package around it
        return False


def _free_address(listen: str, option: str, former: str = "") -> str:
    """Returns the address, for port 0 with that of ``former`` if it is free on this host, or else with any free one.

    Raises InvalidRequest if the address is invalid or in use.
    """
    try:
        host, port = split_address(listen)
    except ValueError as error:
        raise InvalidRequest(str(error)) from None
    if not host:
        raise InvalidRequest(f"an address must be host:port, such as 127.0.0.1:7070, not {listen!r}")
    if port == 0:
        former_host, former_port = split_address(former) if former else ("", 0)
        is_free = former_host == host and are_free([former_port], host)
        port = former_port if is_free else free_ports(1, host)[0]
    try:
        with socket.socket(address_family(host)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            return join_address(host, port)
    except (OSError, OverflowError) as error:
        detail = error.strerror if isinstance(error, OSError) else "there is no such port"
        raise InvalidRequest(
            f"cannot listen on {listen} ({detail}). "
            f"If another `smq dev` uses this address, stop it, or choose another address with {option}"
        ) from None


def _report_progress(on_progress: Callable[[str], None], text: str) -> None:
    """Reports progress. Nothing that tells a person something may stop what is under way."""
    with contextlib.suppress(Exception):
        on_progress(text)


def last_lines(path: Path, count: int = 8) -> str:
    """The end of a log; empty if it cannot be read."""
    with contextlib.suppress(OSError):
        return "\n".join(path.read_text(errors="replace").splitlines()[-count:])
    return ""
