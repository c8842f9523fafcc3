"""A real node: containerd, kubelet and kube-proxy in separate namespaces (network, mounts, processes)."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from .binaries import BIN
from .control_plane import ControlPlane
from .daemons import NotReady, wait_until
from .network import ClusterNetwork, ip, run
from .node_files import containerd_config, kubelet_config, network_config, proxy_config

INIT = Path(__file__).parent / "node-init.sh"
# Routes between nodes are made for this many.
MOST = 2


class Node:
    """One of at most two nodes of a cluster. Killing its first process takes down every daemon, container, mount."""

    def __init__(self, number: int, control_plane: ControlPlane, network: ClusterNetwork) -> None:
        if not 1 <= number <= MOST:
            raise ValueError(f"a cluster has at most {MOST} nodes")
        self.number = number
        self.name = f"node{number}"
        self.folder = control_plane.folder / self.name
        self._control_plane = control_plane
        self._network = network
        self._namespace = network.namespace(number)

    def up(self, images: Sequence[Path]) -> None:
        """Returns when the node is Ready. Does nothing while it is up."""
        daemons = self._control_plane.daemons
        if daemons.alive(self.name):
            return
        for name in ("cni", "kubelet", "log", "varlog", "varlibcni", "hostetc"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "images-loaded").unlink(missing_ok=True)
        self._connect()
        self._write_configuration()
        entered = ["nsenter", f"--net=/run/netns/{self._namespace}"]  # `ip netns exec` would hide the cgroups
        apart = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
        kubeconfig = self._control_plane.authority.kubeconfig(self.name)
        what = ["bash", INIT, self.folder, self.name, self._namespace, self._network.node(self.number), BIN, kubeconfig]
        daemons.start(self.name, [*entered, *apart, *map(str, what)])
        self._wait(lambda: self._ctr("version").returncode == 0, 300, "containerd answers")
        self.load(images)
        (self.folder / "images-loaded").touch()
        self._wait(self.ready, 300, "the node is Ready")

    def ready(self) -> bool:
        """What the API says: a killed node is Ready until its grace period is over."""
        path = '{.status.conditions[?(@.type=="Ready")].status}'
        with contextlib.suppress(subprocess.CalledProcessError):
            return self._control_plane.kubectl("get", "node", self.name, "-o", f"jsonpath={path}") == "True"
        return False

    def load(self, archives: Sequence[Path]) -> None:
        """Brings images to this node. Raises RuntimeError."""
        for archive in archives:
            done = self._ctr("images", "import", str(archive))
            if done.returncode:
                raise RuntimeError(f"{self.name} does not take the image {archive}: {done.stderr.strip()}")

    def kill(self) -> None:
        """The power fails: every process of the node ends at once; its files and its network stay."""
        self._control_plane.daemons.stop(self.name, signal.SIGKILL)

    def down(self) -> None:
        self.kill()
        ip("netns", "del", self._namespace, check=False)
        with contextlib.suppress(NotReady):
            wait_until(self._without_cgroups, 60, "the node's cgroups are empty")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _connect(self) -> None:
        """The node's network namespace, on the bridge; routes between nodes and from this machine to Pods."""
        network, space = self._network, self._namespace
        if space in ip("netns", "list").stdout.split():
            return
        ip("netns", "add", space)
        ip("link", "del", f"v{space}", check=False)  # a former node's may live on after its namespace
        ip("link", "add", f"v{space}", "type", "veth", "peer", "name", "eth0", "netns", space)
        ip("link", "set", f"v{space}", "master", network.bridge, "up")
        for family in network.families:
            family.assign(family.node(self.number), "eth0", ("-n", space))
        for device in ("eth0", "lo"):
            ip("-n", space, "link", "set", device, "up")
        other = MOST + 1 - self.number
        for family in network.families:
            own, via = family.node(self.number), family.node(other)
            run(["nsenter", f"--net=/run/netns/{space}", "sysctl", "-qw", f"{family.forwarding}=1"])
            ip("-n", space, "route", "add", family.node_pods(other), "via", via)
            # For the look-up before kube-proxy replaces the address. Without a default route, Pods reach nothing else.
            ip("-n", space, "route", "add", family.services, "via", family.host)
            ip("route", "replace", family.node_pods(self.number), "via", own, "dev", network.bridge)
            if self.number == 1:
                ip("route", "replace", family.services, "via", own, "dev", network.bridge)

    def _write_configuration(self) -> None:
        network, authority, folder = self._network, self._control_plane.authority, self.folder
        addresses = [family.node(self.number) for family in network.families]
        authority.user(self.name, f"/O=system:nodes/CN=system:node:{self.name}", self._control_plane.url)
        authority.server(f"kubelet{self.number}", self.name, [*addresses, self.name])
        (folder / "containerd.toml").write_text(containerd_config(folder))
        (folder / "hostetc" / "resolv.conf").write_text("")
        first, certificate = network.first, f"kubelet{self.number}"
        kubelet = kubelet_config(folder, self._namespace, addresses[0], first.dns, authority, certificate)
        proxy = proxy_config(self.name, network.pods, authority.kubeconfig("kube-proxy"))
        subnets = {family.node_pods(self.number): family.everything for family in network.families}
        cni = network_config(folder, subnets)
        files = {"kubelet.yaml": kubelet, "proxy.yaml": proxy, "cni/10-bridge.conflist": cni}
        for name, document in files.items():
            (folder / name).write_text(json.dumps(document, indent=1))

    def _ctr(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["ctr", "--address", str(self.folder / "containerd.sock"), "--namespace", "k8s.io", *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    def _wait(self, condition, deadline: float, what: str) -> None:  # type: ignore[no-untyped-def]
        try:
            wait_until(condition, deadline, f"{self.name}: {what}")
        except NotReady as error:
            said = [f"--- {p.name}\n" + "\n".join(p.read_text().splitlines()[-5:]) for p in self._logs()]
            raise NotReady("\n".join([str(error), *said])) from None

    def _logs(self) -> list[Path]:
        return sorted((self.folder / "log").glob("*.log"))

    def _without_cgroups(self) -> bool:
        """True when the node's cgroups are removed; they can be only when their processes are gone."""
        roots = [*Path("/sys/fs/cgroup").glob(self._namespace), *Path("/sys/fs/cgroup").glob(f"*/{self._namespace}")]
        for root in roots:
            for folder in sorted((p for p in root.rglob("*") if p.is_dir()), reverse=True):
                with contextlib.suppress(OSError):
                    folder.rmdir()
            with contextlib.suppress(OSError):
                root.rmdir()
        return not any(root.exists() for root in roots)
