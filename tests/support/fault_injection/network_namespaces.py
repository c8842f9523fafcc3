"""A network of namespaces on this machine. Each process has its own address, and a test can cut off any two of them.

::

    root ──┐
           ├── bridge, in a separate namespace, so that the machine's firewall does not apply
    node ──┤
    node ──┘   each node has one namespace and one address, and drops packets from nodes that are cut off

Needs root, ``ip`` (iproute2), ``nft`` (nftables) and ``nsenter``. A guard process ends the
processes in the namespaces and removes them, also if the process that created the network is killed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

NAMESPACES = Path("/run/netns")
SWITCH = "switch"
_OURS = re.compile(r"smq(\d+)-.+")


def unavailable_reason() -> str | None:
    """Why such a network is not possible here; None if it is."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in ("ip", "nft", "nsenter") if shutil.which(tool) is None]
    return f"{', '.join(missing)} missing: apt-get install iproute2 nftables util-linux" if missing else None


class NamespaceNetwork:
    """A context manager. ``nodes`` are names. This process is outside, reaches all, and is never cut off."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self.nodes = list(nodes)
        self._prefix = f"smq{os.getpid()}"
        self._subnet = f"10.213.{os.getpid() % 254 + 1}"
        self._guard: subprocess.Popen[bytes] | None = None

    def address(self, node: str) -> str:
        return f"{self._subnet}.{10 + self.nodes.index(node)}"

    def inside(self, node: str) -> list[str]:
        """The prefix that runs a command in that node. The process id stays the same."""
        return ["nsenter", f"--net={NAMESPACES / self._name(node)}"]

    def _name(self, node: str) -> str:
        return f"{self._prefix}-{node}"

    def __enter__(self) -> NamespaceNetwork:
        remove_stale_namespaces()
        self._guard = subprocess.Popen(
            [sys.executable, __file__, self._prefix], stdin=subprocess.PIPE, start_new_session=True
        )
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            self._guard.wait(120)

    def _build(self) -> None:
        switch = self._name(SWITCH)
        run("ip", "netns", "add", switch)
        run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", switch, "link", "set", "bridge", "up")
        # The outer end is named after this process. It is removed with the inner one.
        run("ip", "link", "add", self._prefix, "type", "veth", "peer", "name", "root", "netns", switch)
        run("ip", "-n", switch, "link", "set", "root", "master", "bridge", "up")
        run("ip", "addr", "add", f"{self._subnet}.1/24", "dev", self._prefix)
        run("ip", "link", "set", self._prefix, "up")
        for number, node in enumerate(self.nodes):
            name, port = self._name(node), f"port{number}"
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "-n", switch, "link", "set", port, "master", "bridge", "up")
            run("ip", "-n", name, "addr", "add", f"{self.address(node)}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")
            rules = "add table ip cuts; add chain ip cuts input { type filter hook input priority 0; }"
            run(*self.inside(node), "nft", rules)

    def cut(self, source: str, target: str) -> None:
        """Drops everything that ``source`` sends to ``target``. The other direction does not change."""
        rule = f"add rule ip cuts input ip saddr {self.address(source)} drop"
        run(*self.inside(target), "nft", rule)

    def heal(self) -> None:
        """Removes all cuts."""
        for node in self.nodes:
            run(*self.inside(node), "nft", "flush chain ip cuts input")


def run(*words: str) -> str:
    """Raises RuntimeError with the command's output."""
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def remove_stale_namespaces() -> None:
    """Removes namespaces of processes that ended together with their guard."""
    for path in NAMESPACES.glob("smq*-*"):
        found = _OURS.fullmatch(path.name)
        if found is not None and not Path(f"/proc/{found[1]}").exists():
            remove(path.name)


def remove(name: str) -> None:
    """Kills what runs in the namespace, then removes it with its end of every cable."""
    with contextlib.suppress(RuntimeError):
        for pid in run("ip", "netns", "pids", name).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        run("ip", "netns", "del", name)


def remove_when_parent_exits(prefix: str) -> None:
    """Waits until the creator closes this process's input, on purpose or because it ended, and removes its network."""
    sys.stdin.buffer.read()
    for path in sorted(NAMESPACES.glob(f"{prefix}-*")):
        remove(path.name)


if __name__ == "__main__":
    remove_when_parent_exits(sys.argv[1])
