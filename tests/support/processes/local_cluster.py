"""A leader with its brokers as real processes over a real SeaweedFS, as `smq-operator local` runs them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import smq
from smq_operator.local.broker_records import read_records
from smq_storage.object_store.store import StoreSettings
from smq_storage.process.ports import free_port
from support.processes.recorded import kill_recorded
from support.waiting import HANG_GUARD, eventually


def manifest(name: str, **spec: object) -> str:
    """A Topic manifest as JSON; ``spec`` replaces these small defaults."""
    small: dict[str, object] = {"partitions": 64, "replicas": 2, "segments": {"min": 1, "max": 16}}
    resource = {
        "apiVersion": "seaweedmq.io/v1alpha1",
        "kind": "Topic",
        "metadata": {"name": name},
        "spec": small | spec,
    }
    return json.dumps(resource)


class LocalCluster:
    """Use as a context manager. ``folder`` holds manifests, logs and the records of broker processes.

    ``brokers`` may be changed before the next start. ``host`` is where the leader listens, ``wrapper`` a command that
    runs the leader's command.
    """

    def __init__(
        self,
        folder: Path,
        store: StoreSettings,
        *,
        brokers: int = 3,
        arguments: tuple[str, ...] = ("--broker-memory", "4Gi"),
        host: str = "127.0.0.1",
        wrapper: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.store = store
        self.address = f"{host}:{free_port()}"
        self._wrapper = wrapper
        self.brokers = brokers
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False

    def start(self, *, wait: bool = True) -> None:
        """Starts the leader and, with ``wait``, waits until all brokers have reported to it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._killed = False
        with (self.folder / "leader.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(*self._wrapper, sys.executable, "-m", "smq_operator.main", "local"),
                    *("--dir", str(self.folder), "--listen", self.address, "--brokers", str(self.brokers)),
                    *self._arguments,
                ],
                env=os.environ | self.store.to_env() | {"PYTHONFAULTHANDLER": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        if not wait:
            return
        with self.connect() as client:
            admin = client.admin()
            eventually(
                lambda: sum(b.state == "alive" for b in admin.brokers()) >= self.brokers,
                what=f"{self.brokers} brokers; see {self.folder}",
            )

    def connect(self) -> smq.Client:
        return smq.connect(self.address, timeout=60)

    def create(self, name: str, **spec: object) -> None:
        """Creates a topic and waits until it has its segments."""
        with self.connect() as client:
            client.admin().apply(manifest(name, **spec))
            eventually(lambda: client.admin().segments(name), what=f"the first layout of {name}")

    def pids(self) -> dict[str, int]:
        """The processes of the running brokers, by name."""
        found = {}
        for path in (self.folder / "brokers").glob("*.json"):
            with contextlib.suppress(OSError, ValueError):
                pid = json.loads(path.read_text())["pid"]
                if pid is not None:  # else the leader has not started it yet
                    found[path.stem] = int(pid)
        return found

    def relay_address(self, name: str) -> str | None:
        """Where that broker relays; None before it does."""
        return self._last_address(name, "relay")

    def kafka_address(self, name: str) -> str | None:
        """Where that broker serves Kafka clients; None before it does."""
        return self._last_address(name, "kafka")

    def _last_address(self, name: str, kind: str) -> str | None:
        """As the last process of that broker has logged it."""
        ready = [it for it in (self.folder / "logs" / f"{name}.log").read_text().splitlines() if "broker.ready" in it]
        return str(json.loads(ready[-1])[kind]) if ready else None

    def kill_broker(self, name: str) -> int:
        """kill -9. Returns the process id."""
        pid = self.pids()[name]
        os.kill(pid, signal.SIGKILL)
        return pid

    @property
    def leader_pid(self) -> int:
        assert self._process is not None, "the leader is not running"
        return self._process.pid

    def kill_leader(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._killed = True

    def kill_all(self) -> None:
        """Ends the leader first, so that it does not restart brokers."""
        pids = self.pids()
        self.kill_leader()
        for pid in pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def lose_brokers(self, names: Iterable[str]) -> None:
        """These brokers are gone with all that they held, their journals too, before the leader can notice it."""
        os.kill(self.leader_pid, signal.SIGSTOP)
        try:
            for name in names:
                self.kill_broker(name)
            self.delete_journals(names)
        finally:
            os.kill(self.leader_pid, signal.SIGCONT)

    def lose_everything(self) -> None:
        """The leader and all brokers end at once, and the brokers' journals are gone. ``start`` starts it again."""
        self.kill_all()
        self.delete_journals(path.stem for path in (self.folder / "brokers").glob("*.json"))

    def delete_journals(self, names: Iterable[str]) -> None:
        for name in names:
            shutil.rmtree(self.folder / "brokers" / name / "journal", ignore_errors=True)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        records, _ = read_records(self.folder / "brokers")
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(HANG_GUARD)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for record in records:
            kill_recorded(record.pid, record.started)

    def __enter__(self) -> LocalCluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._check_leader()
        finally:
            self.stop()

    def _check_leader(self) -> None:
        """A leader that ended by itself is a failure, of which a test sees only that nobody answers."""
        if self._process is None or self._killed or self._process.poll() is None:
            return
        log = (self.folder / "leader.log").read_text(errors="replace")
        raise AssertionError(f"the leader ended with exit code {self._process.returncode}:\n{log[-5000:]}")
