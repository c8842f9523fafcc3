"""A port-forward outlives the Pod that kubectl has chosen. kubectl is a script here."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from smq.cli.connection.port_forward import ForwardFailed, PortForward
from support.waiting import eventually

KUBECTL = """
import signal, sys
from pathlib import Path
folder = Path({folder!r})
with (folder / "starts").open("a") as starts:
    print(*sys.argv[1:], file=starts)
{then}
"""
FORWARD = 'print("Forwarding from 127.0.0.1:4711 -> 7072", flush=True)\n'
STAY = "signal.pause()\n"


def kubectl(folder: Path, then: str) -> list[str]:
    program = folder / "kubectl.py"
    program.write_text(KUBECTL.format(folder=str(folder), then=then))
    return [sys.executable, str(program)]


def starts(folder: Path) -> list[str]:
    return (folder / "starts").read_text().splitlines()


def test_it_is_started_again_at_the_same_address(tmp_path: Path) -> None:
    with PortForward(kubectl(tmp_path, FORWARD), "smq", "queue", 7072) as forward:
        eventually(lambda: len(starts(tmp_path)) >= 3, what="kubectl is started again")
        assert forward.address == "127.0.0.1:4711"
    first, *others = starts(tmp_path)
    assert first == "port-forward service/smq --namespace=queue :7072"
    assert set(others) == {"port-forward service/smq --namespace=queue 4711:7072"}


def test_it_is_not_started_again_after_its_end(tmp_path: Path) -> None:
    with PortForward(kubectl(tmp_path, FORWARD + STAY), "smq", "queue", 7072):
        pass
    assert len(starts(tmp_path)) == 1


def test_what_kubectl_writes_for_each_connection_does_not_block_it(tmp_path: Path) -> None:
    written = 'print("Handling connection for 4711\\n" * 50_000, flush=True)\n(folder / "written").touch()\n'
    with PortForward(kubectl(tmp_path, FORWARD + written + STAY), "smq", "queue", 7072):
        eventually((tmp_path / "written").exists, what="kubectl has written")


def test_if_nothing_can_be_forwarded_it_says_what_kubectl_said(tmp_path: Path) -> None:
    failing = kubectl(tmp_path, 'sys.exit("error: timed out waiting for the condition")')
    with pytest.raises(ForwardFailed, match="timed out waiting"), PortForward(failing, "smq", "queue", 7072):
        pytest.fail("it forwards")
