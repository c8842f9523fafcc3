"""etcd, API server, controller manager and scheduler as processes of this machine."""

from __future__ import annotations

import http.client
import signal
import socket
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

from smq_core.model.addresses import join_address
from smq_storage.process.listeners import address_family

from .binaries import BIN
from .certs import Authority
from .daemons import Daemons, NotReady, wait_until
from .network import ClusterNetwork

LOOPBACK = "127.0.0.1"
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


class ControlPlane:
    """One control plane with its state in ``folder``. With a network it listens on that one's bridge, where Pods
    reach it, otherwise on loopback. Ports are chosen once, so that a restarted API server is found again.
    """

    def __init__(self, folder: Path, daemons: Daemons, network: ClusterNetwork | None) -> None:
        self.folder = folder
        self.daemons = daemons
        self._network = network
        self._addresses = network or ClusterNetwork(0)
        self.authority = Authority(folder / "pki")
        self.host = network.first.host if network else LOOPBACK
        self.port, self._etcd_port, self._peer_port = self._ports()
        self.kubeconfig = self.authority.kubeconfig("admin")

    @property
    def url(self) -> str:
        return f"https://{join_address(self.host, self.port)}"

    def start(self) -> None:
        """Returns when a Namespace has its ServiceAccount, which needs all but the scheduler. Raises NotReady."""
        self._certificates()
        self.start_etcd()
        self.start_api_server()
        self._start_clients()
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self._wait(lambda: self.get(account) == 200, 300, "the controller manager works", "kube-controller-manager")

    def stop(self) -> None:
        """Ends everything at once; the folder stays."""
        for name in reversed(PROGRAMS):
            self.daemons.stop(name, signal.SIGKILL)

    def start_etcd(self) -> None:
        data = self.folder / "etcd"
        data.mkdir(mode=0o700, exist_ok=True)
        clients, peers = f"http://{LOOPBACK}:{self._etcd_port}", f"http://{LOOPBACK}:{self._peer_port}"
        etcd = ["--data-dir", data, "--unsafe-no-fsync", "--log-level", "warn"]
        etcd += ["--listen-client-urls", clients, "--advertise-client-urls", clients]
        etcd += ["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers]
        self.daemons.start("etcd", [BIN / "etcd", *etcd, "--initial-cluster", f"default={peers}"])

    def start_api_server(self) -> None:
        """Returns when it is ready. Raises NotReady."""
        file, key = self.authority.certificate, self.authority.key
        private, public = self.authority.key_pair("accounts")
        flags = {
            "etcd-servers": f"http://{LOOPBACK}:{self._etcd_port}",
            "bind-address": self.host,
            "secure-port": self.port,
            "cert-dir": self.authority.folder,
            "tls-cert-file": file("apiserver"),
            "tls-private-key-file": key("apiserver"),
            "client-ca-file": file("ca"),
            "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
            "service-account-key-file": public,
            "service-account-signing-key-file": private,
            "service-cluster-ip-range": self._addresses.services,
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction",
            "allow-privileged": "true",
            "kubelet-preferred-address-types": "InternalIP",
            "kubelet-client-certificate": file("apiserver-kubelet"),
            "kubelet-client-key": key("apiserver-kubelet"),
            "requestheader-client-ca-file": file("ca"),
            "requestheader-allowed-names": "front-proxy-client",
            "requestheader-username-headers": "X-Remote-User",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
            "proxy-client-cert-file": file("front-proxy"),
            "proxy-client-key-file": key("front-proxy"),
            "default-not-ready-toleration-seconds": 10,
            "default-unreachable-toleration-seconds": 10,
            "profiling": "false",
        }
        if self._network:
            flags["advertise-address"] = self.host
        else:
            flags["endpoint-reconciler-type"] = "none"  # a loopback address is no endpoint
        self._start("kube-apiserver", flags)
        self._wait(lambda: self.get("/readyz") == 200, 300, "the API server is ready", "kube-apiserver", "etcd")

    def wake_controllers(self) -> None:
        """Restarts them after the API server was away: alone they may wait a minute before they retry."""
        for name in self._client_flags():
            self.daemons.stop(name, signal.SIGKILL)
        self._start_clients()

    def get(self, path: str) -> int:
        """The HTTP status of a GET as admin; 0 without an answer."""
        context = ssl.create_default_context(cafile=str(self.authority.certificate("ca")))
        context.load_cert_chain(self.authority.certificate("admin"), self.authority.key("admin"))
        connection = http.client.HTTPSConnection(self.host, self.port, timeout=60, context=context)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()

    @property
    def kubectl_command(self) -> list[str]:
        """With a separate cache: the usual one would speak of whatever cluster had this port before."""
        cache = str(self.folder / "kubectl-cache")
        return [str(BIN / "kubectl"), "--kubeconfig", str(self.kubeconfig), "--cache-dir", cache]

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float = 300) -> str:
        """What kubectl prints, as admin. Raises CalledProcessError, with what it said in ``stderr``."""
        done = subprocess.run(
            [*self.kubectl_command, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=True,
        )
        return done.stdout

    def _start_clients(self) -> None:
        config = self.authority.kubeconfig
        for name, more in self._client_flags().items():
            flags = {
                "kubeconfig": config(name),
                "secure-port": 0,  # their health and metrics are not used
                "leader-elect": "false",
                "profiling": "false",
            }
            self._start(name, flags | more)

    def _client_flags(self) -> dict[str, dict[str, object]]:
        file, key = self.authority.certificate, self.authority.key
        manager = {
            "node-monitor-grace-period": "20s",
            "enable-hostpath-provisioner": "true",
            "use-service-account-credentials": "true",
            "service-account-private-key-file": self.authority.key_pair("accounts")[0],
            "root-ca-file": file("ca"),
            "cluster-signing-cert-file": file("ca"),
            "cluster-signing-key-file": key("ca"),
        }
        return {"kube-controller-manager": manager, "kube-scheduler": {}}

    def _start(self, name: str, flags: dict[str, object]) -> None:
        self.daemons.start(name, [BIN / name, *(f"--{flag}={value}" for flag, value in flags.items())])

    def _certificates(self) -> None:
        kubernetes = "kubernetes.default.svc.cluster.local"
        names = [kubernetes.rsplit(".", n)[0] for n in range(5)]
        own = [LOOPBACK, self.host, self._addresses.first.api_service, "localhost", *names]
        self.authority.server("apiserver", "kube-apiserver", list(dict.fromkeys(own)))
        self.authority.client("apiserver-kubelet", "/O=system:masters/CN=kube-apiserver-kubelet-client")
        self.authority.client("front-proxy", "/CN=front-proxy-client")
        self.authority.user("admin", "/O=system:masters/CN=admin", self.url)
        for name in ("kube-controller-manager", "kube-scheduler", "kube-proxy"):
            self.authority.user(name, f"/CN=system:{name}", self.url)

    def _wait(self, condition: Callable[[], bool], deadline: float, what: str, *programs: str) -> None:
        try:
            wait_until(lambda: condition() or not all(map(self.daemons.alive, programs)), deadline, what)
        except NotReady as error:
            raise NotReady(f"{error}\n{self.daemons.log_tails(*programs)}") from None
        if not condition():
            raise NotReady(f"a program ended before {what}\n{self.daemons.log_tails(*programs)}")

    def _ports(self) -> tuple[int, int, int]:
        kept = self.folder / "ports"
        if not kept.exists():
            kept.write_text(" ".join(map(str, _free_ports(self.host, 3))))
        api, etcd, peer = map(int, kept.read_text().split())
        return api, etcd, peer


def _free_ports(host: str, count: int) -> list[int]:
    """Ports without a listener, on the host and on loopback."""
    sockets: list[socket.socket] = []
    found: list[int] = []
    try:
        while len(found) < count:
            sockets.append(socket.create_server((host, 0), family=address_family(host)))
            port = sockets[-1].getsockname()[1]
            if host != LOOPBACK:
                sockets.append(socket.create_server((LOOPBACK, port)))
            found.append(port)
    finally:
        for each in sockets:
            each.close()
    return found
