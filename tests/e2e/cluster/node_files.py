"""The configuration files of a node's programs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .certs import Authority


def containerd_config(folder: Path) -> str:
    off = ", ".join(f'"io.containerd.snapshotter.v1.{name}"' for name in ("aufs", "btrfs", "devmapper", "zfs"))
    # restrict_oom_score_adj: in a container, root may have no right to lower it
    return f"""\
version = 2
root = "{folder}/containerd"
state = "{folder}/containerd-state"
disabled_plugins = [{off}, "io.containerd.internal.v1.opt"]
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  netns_mounts_under_state_dir = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""


def network_config(folder: Path, subnets: Mapping[str, str]) -> dict[str, Any]:
    """``subnets`` are those of the node's Pods, each with what its Pods reach by way of the node."""
    addresses = {
        "type": "host-local",
        "dataDir": f"{folder}/cni-ipam",
        "ranges": [[{"subnet": subnet}] for subnet in subnets],
        "routes": [{"dst": reached} for reached in subnets.values()],
    }
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipam": addresses}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": "e2e", "plugins": [bridge, ports]}


def kubelet_config(
    folder: Path, cgroup: str, address: str, dns: str, authority: Authority, certificate: str
) -> dict[str, Any]:
    socket = f"unix://{folder}/containerd.sock"
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "failSwapOn": False,
        "enforceNodeAllocatable": ["pods"],
        "containerRuntimeEndpoint": socket,
        "imageServiceEndpoint": socket,
        "address": address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(authority.certificate("ca"))},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(authority.certificate(certificate)),
        "tlsPrivateKeyFile": str(authority.key(certificate)),
        "clusterDNS": [dns],
        "clusterDomain": "cluster.local",
        "resolvConf": f"{folder}/hostetc/resolv.conf",
        "podLogsDir": "/var/log/pods",
        "volumePluginDir": f"{folder}/kubelet/plugins-exec",
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "nodeStatusUpdateFrequency": "5s",
        "syncFrequency": "10s",
        "maxPods": 110,
        # Containers that tests kill start again soon; the usual delay grows to five minutes.
        "featureGates": {"KubeletCrashLoopBackOffMax": True},
        "crashLoopBackOff": {"maxContainerRestartPeriod": "2s"},
    }


def proxy_config(node: str, pods: str, kubeconfig: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "clusterCIDR": pods,
        "hostnameOverride": node,
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }
