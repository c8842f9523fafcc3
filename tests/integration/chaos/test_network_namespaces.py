"""The network of namespaces that chaos runs are played on: cuts cut, one way too, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.fault_injection.network_namespaces import NAMESPACES, NamespaceNetwork, run, unavailable_reason
from support.waiting import eventually

pytestmark = pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason()))

SEND = "import socket, sys; s = socket.socket(type=socket.SOCK_DGRAM); s.sendto(b'x', (sys.argv[1], 9)); print('sent')"
COUNT = r"grep -A1 'Udp: InDat' /proc/net/snmp | tail -1 | awk '{print $3 + $2}'"
MAKER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from support.fault_injection.network_namespaces import NamespaceNetwork, run
import subprocess
network = NamespaceNetwork(["a"])
network.__enter__()
subprocess.Popen([*network.inside("a"), "sleep", "1000"])
print("up", flush=True)
time.sleep(1000)
"""


@pytest.fixture
def network() -> Iterator[NamespaceNetwork]:
    with NamespaceNetwork(["a", "b"]) as made:
        yield made


def arrived(network: NamespaceNetwork, node: str) -> int:
    """Datagrams that this node has heard so far (nobody listens: they count as for no port)."""
    done = subprocess.run([*network.inside(node), "sh", "-c", COUNT], capture_output=True, text=True, check=True)
    return int(done.stdout)


def send(network: NamespaceNetwork, source: str, target: str) -> None:
    done = subprocess.run([*network.inside(source), sys.executable, "-c", SEND, network.address(target)], timeout=120)
    assert done.returncode == 0


def test_a_cut_is_one_way_and_heals(network: NamespaceNetwork) -> None:
    send(network, "a", "b")
    eventually(lambda: arrived(network, "b") == 1, what="a datagram from a at b")
    network.cut("a", "b")
    send(network, "a", "b")
    send(network, "b", "a")
    eventually(lambda: arrived(network, "a") == 1, what="the other way is open")
    assert arrived(network, "b") == 1
    network.heal()
    send(network, "a", "b")
    eventually(lambda: arrived(network, "b") == 2, what="a datagram after the cut has healed")


def test_nothing_is_left_after_a_kill() -> None:
    tests = Path(__file__).parents[2]
    maker = subprocess.Popen([sys.executable, "-c", MAKER, str(tests)], stdout=subprocess.PIPE)
    try:
        assert maker.stdout is not None and maker.stdout.readline() == b"up\n"
        mine = f"smq{maker.pid}-"
        assert [path for path in NAMESPACES.iterdir() if path.name.startswith(mine)]
        inside = eventually(lambda: run("ip", "netns", "pids", f"{mine}a").split(), what="its process is inside")
    finally:
        os.kill(maker.pid, signal.SIGKILL)
        maker.wait()
    eventually(lambda: not [path for path in NAMESPACES.iterdir() if path.name.startswith(mine)])
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in inside), what="its processes are gone")
