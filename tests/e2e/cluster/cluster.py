"""A cluster: a control plane and up to two nodes. Its folder says everything about it, for later processes too."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from . import network as networks
from .binaries import DNS, IMAGES, KUBE, require
from .control_plane import ControlPlane
from .daemons import Daemons, NotReady, wait_until
from .image import DockerArchive
from .network import IPV4, ClusterNetwork
from .node import Node

HERE = Path(__file__).parent


class Cluster:
    """``nodes`` real nodes on one machine (they need root); without any, only the API and its controllers.

    ``versions`` of the Internet Protocol are what nodes, Pods and Services have addresses of, the main one first.
    With ``attached`` everything dies with the thread that started it; otherwise it lives until :meth:`down`, which
    another process may call too. Raises NotBuilt, and NotReady with the end of the logs.
    """

    def __init__(
        self, folder: Path, nodes: int = 0, *, attached: bool = True, versions: tuple[int, ...] = (IPV4,)
    ) -> None:
        require(*((KUBE, DNS) if nodes else (KUBE,)))
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.daemons = Daemons(folder, attached=attached)
        self._network = self._claim(versions) if nodes else self._claimed()
        self.control_plane = ControlPlane(folder, self.daemons, self._network)
        self.nodes = [Node(n, self.control_plane, self._network) for n in range(1, nodes + 1) if self._network]

    @classmethod
    def running(cls, folder: Path) -> Cluster:
        """The cluster that another process started there. Raises FileNotFoundError."""
        if not (folder / "ports").exists():
            raise FileNotFoundError(f"there is no cluster in {folder}: start one with `up`")
        return cls(folder, len(list(folder.glob("node[0-9]"))), attached=False)

    @property
    def kubeconfig(self) -> Path:
        return self.control_plane.kubeconfig

    def up(self) -> None:
        """Returns when the API works, the nodes are ready and names are resolved. May be called again."""
        self.control_plane.start()
        if self.nodes and self._network:
            images = own_images()
            addons = (HERE / "addons.yaml").read_text().replace("DNS_ADDRESS", self._network.first.dns)
            self.control_plane.kubectl("apply", "-f", "-", stdin=addons)
            for node in self.nodes:
                node.up(images)
            wait = ("rollout", "status", "-n", "kube-system", "daemonset/dns", "--timeout=280s")
            self.control_plane.kubectl(*wait)

    def down(self) -> None:
        """Ends what was started here and removes the folder; programs and images stay in the cache."""
        for node in self.nodes:
            node.down()
        self.control_plane.stop()
        for name in self.daemons.names():
            self.daemons.stop(name)
        if self._network:
            networks.release(self._network)
        shutil.rmtree(self.folder, ignore_errors=True)

    def load(self, *archives: Path) -> None:
        """Brings images (docker-archive) to every node."""
        for node in self.nodes:
            node.load(archives)

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes)

    def stop_api_server(self) -> None:
        """It is away until it is started again, where it was."""
        self.daemons.stop("kube-apiserver")

    def start_api_server(self) -> None:
        self.control_plane.start_api_server()

    def __enter__(self) -> Self:
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def _claim(self, versions: tuple[int, ...]) -> ClusterNetwork:
        claimed = self._claimed()
        if claimed is None:
            if os.geteuid() != 0:
                raise RuntimeError("nodes need root: network namespaces, mounts and cgroups are made for them")
            claimed = networks.claim(versions)
            (self.folder / "network").write_text(json.dumps([claimed.slot, claimed.versions]))
        return claimed

    def _claimed(self) -> ClusterNetwork | None:
        kept = self.folder / "network"
        if not kept.exists():
            return None
        slot, versions = json.loads(kept.read_text())
        return ClusterNetwork(slot, tuple(versions))


def own_images() -> Sequence[Path]:
    """The images that a cluster itself needs, made when their programs are newer."""
    from .binaries import BIN

    IMAGES.mkdir(parents=True, exist_ok=True)
    made = []
    for name in ("pause", "dns"):
        archive = IMAGES / f"{name}.tar"
        if not archive.exists() or archive.stat().st_mtime < (BIN / name).stat().st_mtime:
            DockerArchive(f"localhost/{name}:1").add(BIN / name, f"/{name}").entrypoint(f"/{name}").write(archive)
        made.append(archive)
    return made


__all__ = ["Cluster", "NotReady", "own_images", "wait_until"]
