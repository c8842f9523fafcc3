"""Where a chaos run takes place: with its own clocks and network of namespaces, as far as this machine lets us."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from faults import clocks
from faults.network_partitions import BROKERS, CLIENTS, FILER, LEADER, NODES, enter_broker

from smq_storage.process.seaweedfs import SeaweedProcess
from support.fault_injection.network_namespaces import NamespaceNetwork, unavailable_reason
from support.processes.local_cluster import LocalCluster


class ChaosEnvironment:
    """A context manager: SeaweedFS, a leader and its brokers run inside.

    ``network`` and ``clocks`` are None where they are not possible; ``missing`` says why.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        without_network, without_clocks = unavailable_reason(), clocks.unavailable_reason()
        self.network = None if without_network else NamespaceNetwork(NODES)
        self.clocks = None if without_clocks else clocks.SteppedClocks(folder / "clocks", [LEADER, *BROKERS])
        self.missing: list[str] = []
        if without_network:
            self.missing.append(f"no network partitions: {without_network}")
        if without_clocks:
            self.missing.append(f"no stepped clocks: {without_clocks}")

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
        with_clocks = [] if self.clocks is None else [str(self.clocks.script)]
        script = self._folder / "enter-broker"
        script.write_text(enter_broker(self.network, with_clocks))
        script.chmod(0o755)
        arguments = ["--broker-memory", "1Gi", "--broker-wrapper", str(script)]
        if self.network is None:
            return LocalCluster(folder, store, brokers=len(BROKERS), arguments=(*arguments,), wrapper=with_clocks)
        return LocalCluster(
            folder,
            store,
            brokers=len(BROKERS),
            arguments=(*arguments, "--broker-arg=--listen=0.0.0.0:0"),
            host=self.network.address(LEADER),
            wrapper=[*self.network.inside(LEADER), *with_clocks],
        )

    def start_client(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        wrapper = [] if self.network is None else self.network.inside(CLIENTS)
        return subprocess.Popen([*wrapper, *command])
