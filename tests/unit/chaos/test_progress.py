"""A run of chaos clients ends when every reader knows of every acked message: it was delivered, or reported as lost."""

from __future__ import annotations

from pathlib import Path

from support.client_logs.progress import Progress
from support.client_logs.records import LogWriter, log_path


def acked(folder: Path, offsets: int) -> None:
    log = LogWriter(log_path(folder / "writers", "w", 1))
    for number in range(offsets):
        log.acked(f"key 1 {number}", "s", number)
    log.flush()


def reader(folder: Path, given: int) -> LogWriter:
    log = LogWriter(log_path(folder / "readers", "r", 1))
    log.got("s", 0, [f"key 1 {number}" for number in range(given)])
    log.flush()
    return log


def test_a_reader_that_was_given_everything_is_complete(tmp_path: Path) -> None:
    acked(tmp_path, 3)
    log = reader(tmp_path, 2)
    progress = Progress(tmp_path)
    assert not progress.complete(["r"], with_group=False)
    log.got("s", 2, ["key 1 2"])
    log.flush()
    assert progress.complete(["r"], with_group=False)


def test_a_reported_loss_completes_a_reader_as_far_as_it_goes(tmp_path: Path) -> None:
    acked(tmp_path, 5)
    log = reader(tmp_path, 2)
    progress = Progress(tmp_path)
    log.lost("s", 2, 4)
    log.flush()
    assert not progress.complete(["r"], with_group=False)
    log.possibly_lost("s", 4)
    log.flush()
    assert progress.complete(["r"], with_group=False)
