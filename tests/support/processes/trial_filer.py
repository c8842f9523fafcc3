"""The SeaweedFS of the chart's trial, as a process: the command and the hook of its container, on free ports."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from smq_core.errors import StoreDenied, StoreUnavailable
from smq_storage.object_store.store import Store, StoreSettings
from smq_storage.process.ports import free_ports
from smq_storage.process.seaweedfs import find_weed
from support.kube.chart import VALUES, render, workloads
from support.waiting import HANG_GUARD, eventually

SERVICES = ("master", "volume", "filer", "s3")
# Keeps S3 on this machine, too.
LOOPBACK = ("-s3.ip.bind=127.0.0.1",)


class TrialFiler:
    """A context manager. ``folder`` is the container's data, ``wrapper`` a command that is put before its own.

    ``flags`` are added to those of the container.
    """

    def __init__(self, folder: Path, *, wrapper: Sequence[str] = (), flags: Sequence[str] = LOOPBACK) -> None:
        self.folder = folder
        self.log = folder.with_name(f"{folder.name}.log")
        self._wrapper = wrapper
        self._flags = flags
        ports = iter(free_ports(2 * len(SERVICES)))
        self._ports = {service: (next(ports), next(ports)) for service in SERVICES}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id, also after its end."""
        assert self._process is not None, "it was not started"
        return self._process.pid

    @property
    def s3_ports(self) -> set[int]:
        """Of HTTP and of gRPC."""
        return set(self._ports["s3"])

    @property
    def address(self) -> str:
        """Host and port of S3."""
        return f"127.0.0.1:{self._ports['s3'][0]}"

    def store(self, *, timeout: float = HANG_GUARD) -> Store:
        return StoreSettings(url="s3://smq", endpoint=f"http://{self.address}", timeout=timeout).open()

    def start(self) -> None:
        """Returns once the container would be ready."""
        (container,) = workloads(render(VALUES["trial"]))["smq-seaweedfs"]["spec"]["containers"]
        self.folder.mkdir(exist_ok=True)
        flags = [*self._flags]
        for service, (http, grpc) in self._ports.items():
            flags += [f"-{service}.port={http}", f"-{service}.port.grpc={grpc}"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._wrapper, *container["command"], *flags],
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        hook = [self._with_ports(part) for part in container["lifecycle"]["postStart"]["exec"]["command"]]
        subprocess.run(hook, cwd=self.folder, env=self._environment(), check=True, timeout=2 * HANG_GUARD)
        eventually(self._is_serving, what=f"SeaweedFS is serving; see {self.log}")

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(HANG_GUARD)

    def __enter__(self) -> TrialFiler:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _with_ports(self, script: str) -> str:
        for service, default in (("master", 9333), ("filer", 8888)):
            http, grpc = self._ports[service]
            script = script.replace(f"127.0.0.1:{default}", f"127.0.0.1:{http}.{grpc}")
        return script

    def _environment(self) -> dict[str, str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "S3_", "WEED_"))}
        return env | {"HOME": str(self.folder), "PATH": f"{find_weed().parent}:{os.environ['PATH']}"}

    def _is_serving(self) -> bool:
        assert self._process is not None and self._process.poll() is None, f"SeaweedFS ended; see {self.log}"
        try:
            self.store(timeout=5).put("_probe", b"ready")
        except (StoreDenied, StoreUnavailable):
            return False
        return True
