"""Addresses of a cluster, and the bridge that joins its nodes. Each cluster of a machine has its own slot."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

SLOTS = 10
IPV4, IPV6 = 4, 6


@dataclass(frozen=True, slots=True)
class AddressFamily:
    """The addresses of one family in a slot. Formats take a node's number, which counts from 1."""

    # The machine's own address on the bridge; the API server listens there.
    host: str
    node_format: str
    # How many bits of the addresses of machine and nodes are the same.
    prefix: int
    services: str
    api_service: str
    dns: str
    pods: str
    node_pods_format: str
    everything: str
    # The setting of a network namespace that lets it forward packets.
    forwarding: str

    def node(self, number: int) -> str:
        return self.node_format.format(number)

    def node_pods(self, number: int) -> str:
        return self.node_pods_format.format(number)

    def assign(self, address: str, device: str, namespace: Sequence[str] = ()) -> None:
        """Gives it to a device of the machine, or of the namespace that these arguments of ``ip`` select."""
        # Without nodad, no program could listen there until the kernel had made sure that nobody else has the address.
        ip(*namespace, "addr", "add", f"{address}/{self.prefix}", "dev", device, *(["nodad"] if ":" in address else []))


def address_family(version: int, slot: int) -> AddressFamily:
    if version == IPV4:
        return AddressFamily(
            host=f"10.77.{slot}.1",
            node_format=f"10.77.{slot}.1{{}}",
            prefix=24,
            services=f"10.{130 + slot}.0.0/16",
            api_service=f"10.{130 + slot}.0.1",
            dns=f"10.{130 + slot}.0.10",
            pods=f"10.{110 + slot}.0.0/16",
            node_pods_format=f"10.{110 + slot}.{{}}.0/24",
            everything="0.0.0.0/0",
            forwarding="net.ipv4.ip_forward",
        )
    return AddressFamily(
        host=f"fd77:{slot}::1",
        node_format=f"fd77:{slot}::1{{}}",
        prefix=64,
        services=f"fd77:{slot}:1::/112",
        api_service=f"fd77:{slot}:1::1",
        dns=f"fd77:{slot}:1::a",
        pods=f"fd77:{slot}:2::/48",
        node_pods_format=f"fd77:{slot}:2:{{}}::/64",
        everything="::/0",
        forwarding="net.ipv6.conf.all.forwarding",
    )


@dataclass(frozen=True, slots=True)
class ClusterNetwork:
    """The network of the cluster in a slot. Of two families, the first is that of Pods' main addresses."""

    slot: int
    versions: tuple[int, ...] = (IPV4,)

    @property
    def families(self) -> tuple[AddressFamily, ...]:
        return tuple(address_family(version, self.slot) for version in self.versions)

    @property
    def bridge(self) -> str:
        return f"smqe2e{self.slot}"

    @property
    def first(self) -> AddressFamily:
        return self.families[0]

    @property
    def services(self) -> str:
        return ",".join(family.services for family in self.families)

    @property
    def pods(self) -> str:
        return ",".join(family.pods for family in self.families)

    def node(self, number: int) -> str:
        return ",".join(family.node(number) for family in self.families)

    def namespace(self, number: int) -> str:
        """The name of a node's network namespace, and of its cgroups."""
        return f"smqe2e{self.slot}n{number}"


def claim(versions: tuple[int, ...]) -> ClusterNetwork:
    """Makes the bridge of the first free slot. Raises RuntimeError when there is none, or no right to."""
    said = ""
    for slot in range(SLOTS):
        network = ClusterNetwork(slot, versions)
        done = ip("link", "add", network.bridge, "type", "bridge", check=False)
        if done.returncode == 0:
            for family in network.families:
                family.assign(family.host, network.bridge)
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
