"""Nobody else on the machine may read what `smq dev` writes."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from support.processes.cli import DevProcess, smq

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def test_nobody_else_may_read_what_it_writes(dev: DevProcess) -> None:
    assert smq("topic", "create", "private", leader=dev.leader).code == 0
    assert smq("publish", "private", leader=dev.leader, stdin="a message\n").code == 0

    modes = {path.relative_to(dev.folder).as_posix(): path.lstat().st_mode for path in dev.folder.rglob("*")}

    brokers = {f"logs/{path.stem}.log" for path in (dev.folder / "brokers").glob("*.json")}
    assert len(brokers) == 3
    assert modes.keys() >= {"dev.json", "ports.json", "logs/leader.log", "logs/seaweedfs.log"} | brokers
    # SeaweedFS gives some files a mode itself, in a folder that others cannot enter.
    checked = {path: mode for path, mode in modes.items() if not path.startswith("seaweedfs/data/")}
    assert "seaweedfs/data" in checked
    assert not {path: oct(mode) for path, mode in checked.items() if mode & 0o077}


def test_nobody_else_may_read_the_log_in_a_folder_that_was_there(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert smq("dev", "--detach", "--dir", str(tmp_path), "--listen", address).code == 1

    assert (tmp_path / "logs").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "logs/dev.log").stat().st_mode & 0o777 == 0o600
