"""Addresses of a cluster, and the bridge that joins its nodes. Each cluster of a machine has its own slot."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

SLOTS = 10


@dataclass(frozen=True, slots=True)
class ClusterNetwork:
    """Addresses by the slot's number. A node's number counts from 1."""

    slot: int

    @property
    def bridge(self) -> str:
        return f"smqe2e{self.slot}"

    @property
    def host(self) -> str:
        """The machine's own address on the bridge; the API server listens there."""
        return f"10.77.{self.slot}.1"

    @property
    def services(self) -> str:
        return f"10.{130 + self.slot}.0.0/16"

    @property
    def api_service(self) -> str:
        return f"10.{130 + self.slot}.0.1"

    @property
    def dns(self) -> str:
        return f"10.{130 + self.slot}.0.10"

    @property
    def pods(self) -> str:
        return f"10.{110 + self.slot}.0.0/16"

    def node(self, number: int) -> str:
        return f"10.77.{self.slot}.{10 + number}"

    def node_pods(self, number: int) -> str:
        return f"10.{110 + self.slot}.{number}.0/24"

    def namespace(self, number: int) -> str:
        """The name of a node's network namespace, and of its cgroups."""
        return f"smqe2e{self.slot}n{number}"


def claim() -> ClusterNetwork:
    """Makes the bridge of the first free slot. Raises RuntimeError when there is none, or no right to."""
    said = ""
    for slot in range(SLOTS):
        network = ClusterNetwork(slot)
        done = ip("link", "add", network.bridge, "type", "bridge", check=False)
        if done.returncode == 0:
            ip("addr", "add", f"{network.host}/24", "dev", network.bridge)
            ip("link", "set", network.bridge, "up")
            return network
        said = done.stderr.strip()
        if "exists" not in said:
            break
    raise RuntimeError(f"no bridge for the nodes could be made (it needs root): {said}")


def release(network: ClusterNetwork) -> None:
    ip("link", "del", network.bridge, check=False)


def ip(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return run(["ip", *arguments], check=check)


def run(command: Sequence[str], *, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Runs a command and keeps what it says. Raises RuntimeError with it when it fails and ``check`` is set."""
    done = subprocess.run(command, capture_output=True, text=True)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done
