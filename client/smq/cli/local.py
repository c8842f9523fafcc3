"""SeaweedFS and a leader with its brokers as child processes of this one: what `smq dev` and the demo run on.

The leader is started as a program, not imported: a client knows nothing of the operator's code.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from smq_core.errors import InvalidRequest, SmqError, Unavailable
from smq_storage.seaweed import SeaweedProcess

LEADER_STOPS_WITHIN = 45.0
BROKER_STOPS_WITHIN = 15.0
SEAWEED_STOPS_WITHIN = 20.0


class FolderInUse(SmqError):
    """Another process runs on the same folder."""


class LocalCluster:
    """A whole system on this machine; its data lives in ``folder`` and outlives it.

    ``listen`` is the leader's host:port; port 0 takes a free one; ``more`` are flags of the leader. Use as a context
    manager, or ``start`` and ``stop`` (which may be called at any time, also after a start that failed). Only one may
    use a folder at a time.
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
        self._more = tuple(more)
        self._listen = listen
        self.address = listen
        self.seaweed = SeaweedProcess(self.folder / "seaweedfs")
        self._leader: subprocess.Popen[bytes] | None = None
        self._lock: IO[str] | None = None

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def leader_log(self) -> Path:
        return self.logs / "leader.log"

    def start(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Returns when every process was started; the leader may need a moment to answer.

        Raises FolderInUse, InvalidRequest (the port), Unavailable (SeaweedFS or the leader cannot be started).
        """
        if find_spec("smq_operator") is None or find_spec("smq_broker") is None:
            raise Unavailable("the leader and the brokers are not installed here: pip install 'seaweedmq[local]'")
        self.logs.mkdir(parents=True, exist_ok=True)
        self._take_folder()
        self._end_leftovers(say)
        self.address = _free_address(self._listen)
        say("starting SeaweedFS")
        self.seaweed.start()
        self._remember()
        say("starting the leader and its brokers")
        self._start_leader()
        self._remember()

    def wait_ready(self, within: float = 90.0) -> None:
        """Until all brokers have reported to the leader. Raises Unavailable."""
        import smq

        until = time.monotonic() + within
        alive, cause = 0, ""
        with smq.connect(self.address, timeout=2.0) as client:
            while time.monotonic() < until:
                if trouble := self.trouble():
                    raise Unavailable(trouble)
                try:
                    alive = sum(b.state == "alive" for b in client.admin().brokers())
                except Unavailable as error:
                    cause = f": {error.message}"
                if alive >= self.brokers:
                    return
                time.sleep(0.1)
        raise Unavailable(
            f"after {within:.0f} s {alive} of {self.brokers} brokers are there{cause}; the logs are in {self.logs}"
        )

    def stop(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Ends what was started, in order: the leader with its brokers, then SeaweedFS. The data stays."""
        self.stop_leader(say)
        if self.seaweed.pid is not None:
            say("stopping SeaweedFS")
        self.seaweed.stop(SEAWEED_STOPS_WITHIN)
        if self._lock is not None:
            self._notes.unlink(missing_ok=True)
            self._lock.close()
            self._lock = None

    def stop_leader(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Ends the leader, which ends its brokers; SeaweedFS stays."""
        if self._leader is not None:
            say("stopping the leader and its brokers")
            _end(self._leader, LEADER_STOPS_WITHIN)
            self._leader = None
            self._end_orphans()

    def trouble(self) -> str | None:
        """What ended although nobody asked it to, with the end of its log; None while all is well."""
        if self._leader is not None and (code := self._leader.poll()) is not None:
            return f"the leader ended (exit code {code}); {self.leader_log} ends with:\n{_last_lines(self.leader_log)}"
        if self.seaweed.pid is None:
            return f"SeaweedFS ended; {self.seaweed.log} ends with:\n{_last_lines(self.seaweed.log)}"
        return None

    def __enter__(self) -> LocalCluster:
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
        command += ["--dir", str(self.folder), "--listen", self.address, "--brokers", str(self.brokers)]
        if self.max_brokers is not None:
            command += ["--max-brokers", str(self.max_brokers)]
        command += ["--filer-url", store.url, "--filer-endpoint", store.endpoint or "", *self._more]
        # This SeaweedFS lets everybody in; what is set for another store does not belong here.
        env = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SMQ_"))}
        with self.leader_log.open("ab") as log:
            # Its own session: Ctrl-C in the terminal is for `smq dev`, which then stops everything in order.
            self._leader = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True
            )

    def _end_orphans(self) -> None:
        """Brokers go on without a leader that was killed. Anywhere else that is right; here nobody else ends them."""
        for path in (self.folder / "brokers").glob("*.json"):
            with contextlib.suppress(OSError, ValueError):
                record = json.loads(path.read_text())
                _end_by_pid(record.get("pid"), record.get("started"), BROKER_STOPS_WITHIN)

    # ---- one at a time, also after a crash

    @property
    def _notes(self) -> Path:
        return self.folder / "dev.json"

    def _take_folder(self) -> None:
        lock = (self.folder / "dev.lock").open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            owner = lock.read().strip()
            lock.close()
            raise FolderInUse(
                f"{self.folder} is in use by another `smq dev` (process {owner}): "
                f"stop that one, or give this one another folder with --dir"
            ) from None
        lock.seek(0)
        lock.truncate()
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock

    def _remember(self) -> None:
        """Notes the processes, so that the next start can end them should this one be killed."""
        pids = [pid for pid in (self._leader.pid if self._leader else None, self.seaweed.pid) if pid is not None]
        self._notes.write_text(json.dumps({"boot": _boot(), "processes": [[pid, _started(pid)] for pid in pids]}))

    def _end_leftovers(self, say: Callable[[str], None]) -> None:
        with contextlib.suppress(FileNotFoundError, ValueError):
            notes = json.loads(self._notes.read_text())
            for pid, started in notes["processes"] if notes["boot"] == _boot() else ():
                if started is not None and _started(pid) == started:
                    say(f"ending process {pid}, left over from a `smq dev` that was killed")
                    _end_by_pid(pid, started, LEADER_STOPS_WITHIN)


def _free_address(listen: str) -> str:
    """The address with its port taken if it is 0. Raises InvalidRequest when it is no address or in use."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise InvalidRequest(f"an address is host:port, such as 127.0.0.1:7070, not {listen!r}")
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, int(port)))
            return f"{host}:{probe.getsockname()[1]}"
    except (OSError, OverflowError) as error:
        words = error.strerror if isinstance(error, OSError) else "there is no such port"
        raise InvalidRequest(
            f"cannot listen on {listen} ({words}): "
            "another `smq dev` may run there; stop it, or choose another address with --listen"
        ) from None


def _started(pid: int) -> int | None:
    """The start time of a process, in ticks since the machine's; None when there is none (or it is a zombie)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _boot() -> str:
    """Pids and start times mean nothing after the machine was started anew."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _end(process: subprocess.Popen[bytes], within: float) -> None:
    process.terminate()
    try:
        process.wait(within)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _end_by_pid(pid: int | None, started: int | None, within: float) -> None:
    """The process that began at that time; nothing when it has ended, or is another one by now."""
    if pid is None or started is None:
        return
    until = time.monotonic() + within
    how = signal.SIGTERM
    while _started(pid) == started:
        if time.monotonic() > until:
            how = signal.SIGKILL
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, how)
        # A second SIGTERM would mean "at once"; so this waits for the first one.
        while _started(pid) == started and time.monotonic() < until:
            time.sleep(0.1)


def _last_lines(path: Path, count: int = 8) -> str:
    with contextlib.suppress(OSError):
        return "\n".join(path.read_text(errors="replace").splitlines()[-count:])
    return ""
