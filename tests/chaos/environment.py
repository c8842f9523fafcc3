"""Where a chaos run takes place: in a network of namespaces when this machine lets us, else on loopback."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from network_partitions import BROKERS, CLIENTS, FILER, LEADER, NODES, enter_broker

from smq_storage.process.seaweedfs import SeaweedProcess
from support.fault_injection.network_namespaces import NamespaceNetwork, unavailable_reason
from support.processes.local_cluster import LocalCluster

HERE = Path(__file__).parent


class ChaosEnvironment:
    """A context manager: SeaweedFS, a leader and its brokers run inside. ``network`` is None on loopback."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self.without_network = unavailable_reason()
        self.network: NamespaceNetwork | None = None if self.without_network else NamespaceNetwork(NODES)

    def __enter__(self) -> ChaosEnvironment:
        with ExitStack() as stack:
            if self.network is not None:
                stack.enter_context(self.network)
            self.seaweed = stack.enter_context(self._filer())
            self.cluster = stack.enter_context(self._cluster())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _filer(self) -> SeaweedProcess:
        folder = self._folder / "filer"
        if self.network is None:
            return SeaweedProcess(folder)
        return SeaweedProcess(folder, host=self.network.address(FILER), wrapper=self.network.inside(FILER))

    def _cluster(self) -> LocalCluster:
        folder, store = self._folder / "cluster", self.seaweed.settings("chaos")
        arguments: tuple[str, ...] = ("--broker-memory", "1Gi")
        if self.network is None:
            return LocalCluster(folder, store, brokers=len(BROKERS), arguments=arguments)
        script = self._folder / "enter-broker"
        script.write_text(enter_broker(self.network))
        script.chmod(0o755)
        arguments += ("--broker-wrapper", str(script), "--broker-arg=--listen=0.0.0.0:0")
        return LocalCluster(
            folder,
            store,
            brokers=len(BROKERS),
            arguments=arguments,
            host=self.network.address(LEADER),
            wrapper=self.network.inside(LEADER),
        )

    def client(self, script: str, *arguments: object) -> subprocess.Popen[bytes]:
        """Starts a client's script of this folder."""
        wrapper = [] if self.network is None else self.network.inside(CLIENTS)
        return subprocess.Popen([*wrapper, sys.executable, str(HERE / script), *map(str, arguments)])
