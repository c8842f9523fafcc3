"""What the clients of chaos runs do with their logs: a writer continues, and the run knows when all was delivered."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from support.client_logs.progress import Progress
from support.client_logs.records import LogWriter, log_path, next_run, read_lines
from support.programs import load_chaos_program


@pytest.fixture(scope="module")
def writer() -> ModuleType:
    return load_chaos_program("writer_process")


def test_a_writer_continues_with_what_had_no_ack(writer: ModuleType, tmp_path: Path) -> None:
    """Of the key in turn first what no earlier run had an ack for, then new numbers."""
    first = LogWriter(log_path(tmp_path, "w", next_run(tmp_path, "w")))
    for number in range(3):
        first.sent(f"w-0 1 {number}")
    first.acked("w-0 1 0", "s", 0)
    first.flush()
    second = LogWriter(log_path(tmp_path, "w", next_run(tmp_path, "w")))
    second.sent("w-0 2 1")
    second.acked("w-0 2 1", "s", None)
    second.flush()
    assert next_run(tmp_path, "w") == 3
    numbers = writer.Numbers(tmp_path, "w", 3)
    taken = [numbers.take() for _ in range(writer.KEYS + 1)]
    assert taken[0] == ("w-0", 2) and taken[-1] == ("w-0", 3)
    assert taken[1] == ("w-1", 0)


def test_the_first_run_begins_at_zero(writer: ModuleType, tmp_path: Path) -> None:
    numbers = writer.Numbers(tmp_path, "w", next_run(tmp_path, "w"))
    assert [numbers.take() for _ in range(2)] == [("w-0", 0), ("w-1", 0)]


def test_progress_reads_on_in_growing_logs(tmp_path: Path) -> None:
    written, read = LogWriter(tmp_path / "writers" / "w.1.log"), LogWriter(tmp_path / "readers" / "r.1.log")
    member = LogWriter(tmp_path / "groups" / "g" / "m.1.log")
    progress = Progress(tmp_path)
    written.sent("k 1 0")
    written.acked("k 1 0", "s", 0)
    written.flush()
    assert progress.acked("w") == 1 and not progress.complete(["r"], with_group=False)
    read.got("s", 0, ["k 1 0"])
    read.flush()
    assert progress.complete(["r"], with_group=False) and not progress.complete(["r"], with_group=True)
    member.got("s", 0, ["k 1 0"])
    member.flush()
    assert progress.complete(["r"], with_group=True) and progress.delivered() == 2
    written.sent("k 1 1")
    written.acked("k 1 1", "s", None)
    written.flush()
    assert progress.acked("w") == 2 and not progress.complete(["r"], with_group=True)


def test_half_a_line_is_read_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "writers" / "w.1.log"
    path.parent.mkdir()
    path.write_text("acked k 1 0 s 0\nacked k 1 1 s")
    progress = Progress(tmp_path)
    assert progress.acked("w") == 1
    with path.open("a") as log:
        log.write(" 1\n")
    assert progress.acked("w") == 2
    assert [words[3] for words in read_lines(path)] == ["0", "1"]
