"""`smq consume`: what is committed is written, whole, before."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from smq.batch import Batch
from smq.cli.app import app
from smq.cli.commands.consume import _write_messages
from smq.cli.files.formats import OutputFormat
from smq.cli.files.sinks import Sink, open_sink
from support.in_memory.topic import rows_of

SEGMENT = "events-0-8-0"


class FakeConsumer:
    """Returns batches of three messages, and looks at the file at every commit."""

    def __init__(self, file: Path, batches: int) -> None:
        self.commits: list[tuple[dict[str, int], int]] = []
        """The positions, and how many messages the file had."""
        self._file = file
        self._left = list(range(batches))
        self._count = batches

    def poll(self, timeout: float) -> Batch | None:
        if not self._left:
            return None
        first = 3 * self._left.pop(0)
        return Batch(rows_of(3), SEGMENT, first, {SEGMENT: first + 3, "other-0-8-1": 7})

    def commit(self, positions: Mapping[str, int]) -> dict[str, int]:
        self.commits.append((dict(positions), messages_in(self._file)))
        return dict(positions)


def messages_in(file: Path) -> int:
    """Raises ArrowInvalid if a Parquet file is not whole."""
    if file.suffix == ".parquet":
        return int(pq.read_table(file).num_rows)
    return file.read_bytes().count(b"\n")


def consume(consumer: FakeConsumer, sink: Sink, limit: int | None = None, commits: bool = True) -> int:
    any_consumer: Any = consumer
    return _write_messages(
        any_consumer, sink, limit, 0.0, commits=commits, poll=lambda it, timeout: it.poll(timeout or 0.0)
    )


def test_a_parquet_file_is_whole_before_its_messages_are_committed(tmp_path: Path) -> None:
    file = tmp_path / "out.parquet"
    consumer = FakeConsumer(file, 3)
    assert consume(consumer, open_sink(OutputFormat.PARQUET, file, False)) == 9
    assert consumer.commits == [({SEGMENT: 9, "other-0-8-1": 7}, 9)]


@pytest.mark.parametrize("output_format", [OutputFormat.TEXT, OutputFormat.JSON])
def test_lines_are_in_the_file_before_their_batch_is_committed(tmp_path: Path, output_format: OutputFormat) -> None:
    file = tmp_path / "out.txt"
    consumer = FakeConsumer(file, 2)
    consume(consumer, open_sink(output_format, file, False))
    assert consumer.commits == [({SEGMENT: 3, "other-0-8-1": 7}, 3), ({SEGMENT: 6, "other-0-8-1": 7}, 6)]


@pytest.mark.parametrize("name", ["out.parquet", "out.json"])
def test_only_the_messages_that_were_written_are_committed(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    consumer = FakeConsumer(file, 2)
    assert consume(consumer, open_sink(OutputFormat(file.suffix[1:]), file, False), limit=4) == 4
    assert consumer.commits[-1] == ({SEGMENT: 4, "other-0-8-1": 7}, 4)


@pytest.mark.parametrize("output_format", [OutputFormat.PARQUET, OutputFormat.JSON])
def test_what_could_not_be_written_is_not_committed(tmp_path: Path, output_format: OutputFormat) -> None:
    file = tmp_path / "out"
    consumer = FakeConsumer(file, 2)
    sink = open_sink(output_format, file, False)
    sink.stream.close()
    sink.stream = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115
    with pytest.raises(OSError, match="No space"):
        consume(consumer, sink)
    assert consumer.commits == []


def test_a_parquet_file_that_was_given_up_is_not_committed(tmp_path: Path) -> None:
    file = tmp_path / "out.parquet"
    consumer = FakeConsumer(file, 2)

    def interrupted(_: float) -> Batch | None:
        raise KeyboardInterrupt

    sink = open_sink(OutputFormat.PARQUET, file, False)
    poll = consumer.poll
    consumer.poll = lambda timeout: poll(timeout) if len(consumer._left) > 1 else interrupted(timeout)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        consume(consumer, sink)
    assert consumer.commits == []


def test_without_a_group_nothing_is_committed(tmp_path: Path) -> None:
    for name in ("out.parquet", "out.json"):
        consumer = FakeConsumer(tmp_path / name, 2)
        consume(consumer, open_sink(OutputFormat(name[4:]), tmp_path / name, False), commits=False)
        assert consumer.commits == []


def test_a_parquet_file_cannot_have_the_columns_of_several_schemas(tmp_path: Path) -> None:
    to = str(tmp_path / "out.parquet")
    ran = CliRunner().invoke(app, ["consume", "t", "--schema", "own", "-f", "parquet", "--to", to])
    assert ran.exit_code == 1
    assert "leave out --schema own" in ran.output
    assert not list(tmp_path.iterdir())
