"""`smq consume --group`: members end when the group has read everything, and files have what is committed."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from support.processes.cli import SMQ, environment, smq
from support.waiting import HANG_GUARD, eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def publish(leader: str, topic: str, first: int, stop: int) -> None:
    lines = "".join(f"{n % 50},{n}\n" for n in range(first, stop))
    ran = smq("publish", topic, "--key-delimiter", ",", leader=leader, stdin=lines)
    assert ran.code == 0, ran


def split(leader: str, topic: str) -> None:
    """The topic's only segment ends, and two follow it."""
    ran = smq("segment", "split", f"{topic}-0-16-0", leader=leader)
    assert ran.code == 0, ran


def members(leader: str, topic: str, *outputs: tuple[str, ...]) -> list[subprocess.Popen[str]]:
    """Members of a group that end at its end, at once."""
    command = [*SMQ, "consume", topic, "--group", "g", "--from", "earliest"]
    return [
        subprocess.Popen([*command, *output], stdout=subprocess.PIPE, env=environment(leader), text=True)
        for output in outputs
    ]


def lag(leader: str, topic: str) -> list[str]:
    return smq("group", "list", topic, leader=leader).column("LAG")


def test_two_members_that_end_at_the_end_have_read_everything(leader: str, topic: str) -> None:
    publish(leader, topic, 0, 1000)
    split(leader, topic)
    publish(leader, topic, 1000, 2000)
    running = members(leader, topic, ("-e",), ("-e",))
    found = [int(line) for it in running for line in it.communicate(timeout=HANG_GUARD)[0].splitlines()]
    assert [it.returncode for it in running] == [0, 0]
    assert sorted(found) == list(range(2000))


def test_two_members_with_parquet_files_have_read_everything(leader: str, topic: str, tmp_path: Path) -> None:
    publish(leader, topic, 0, 150)
    split(leader, topic)
    publish(leader, topic, 150, 300)
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    running = members(leader, topic, *(("-e", "--to", str(file)) for file in files))
    assert [it.wait(HANG_GUARD) for it in running] == [0, 0]
    tables = [pq.read_table(file) for file in files if file.stat().st_size]
    assert sorted(int(value) for table in tables for value in table["value"].to_pylist()) == list(range(300))
    eventually(lambda: lag(leader, topic) == ["0"])


def test_a_number_of_messages_in_a_parquet_file_may_go_beyond_a_segment(
    leader: str, topic: str, tmp_path: Path
) -> None:
    publish(leader, topic, 0, 150)
    split(leader, topic)
    publish(leader, topic, 150, 300)
    (running,) = members(leader, topic, ("--max", "200", "--to", str(tmp_path / "x.parquet")))
    assert running.wait(HANG_GUARD) == 0
    assert pq.read_table(tmp_path / "x.parquet").num_rows == 200
    assert [it.name for it in tmp_path.iterdir()] == ["x.parquet"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_a_parquet_file_has_is_committed_when_the_command_is_ended(
    leader: str, topic: str, tmp_path: Path, number: signal.Signals
) -> None:
    # More than a buffer, so that the file shows when the first messages are written.
    ran = smq("publish", topic, leader=leader, stdin="".join(f"{os.urandom(200).hex()}\n" for _ in range(150)))
    assert ran.code == 0, ran
    file = tmp_path / "x.parquet"
    (running,) = members(leader, topic, ("--to", str(file)))
    eventually(lambda: file.exists() and file.stat().st_size > 0, what="it has written")
    running.send_signal(number)
    assert running.wait(HANG_GUARD) == 128 + number
    written = pq.read_table(file).num_rows
    assert written > 0
    eventually(lambda: lag(leader, topic) == [str(150 - written)])
