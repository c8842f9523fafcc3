"""A cluster of kind that the tests of the product can use in place of the project's own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Self

CONFIG = Path(__file__).parent / "cluster.yaml"
NAME = "seaweedmq-e2e"
SERVICES = "10.96.0.0/16"


class KindCluster:
    """What :class:`e2e.cluster.cluster.Cluster` is to those tests. Raises CalledProcessError, FileNotFoundError."""

    node_names = (f"{NAME}-worker", f"{NAME}-worker2")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"

    def load(self, *archives: Path) -> None:
        for archive in archives:
            _run("kind", "load", "image-archive", str(archive), "--name", NAME)

    def stop_api_server(self) -> None:
        """With the whole control plane; its state stays."""
        _run("docker", "pause", f"{NAME}-control-plane")

    def start_api_server(self) -> None:
        _run("docker", "unpause", f"{NAME}-control-plane")

    def __enter__(self) -> Self:
        _run("kind", "create", "cluster", f"--config={CONFIG}", f"--kubeconfig={self.kubeconfig}", "--wait=180s")
        nodes = json.loads(_run("kubectl", f"--kubeconfig={self.kubeconfig}", "get", "nodes", "-o", "json"))["items"]
        for node in nodes:
            address = next(a["address"] for a in node["status"]["addresses"] if a["type"] == "InternalIP")
            _run("ip", "route", "replace", node["spec"]["podCIDR"], "via", address)
            if node["metadata"]["name"] == self.node_names[0]:
                _run("ip", "route", "replace", SERVICES, "via", address)
        return self

    def __exit__(self, *_: object) -> None:
        _run("kind", "delete", "cluster", "--name", NAME)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
