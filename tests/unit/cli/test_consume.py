"""`smq consume`: what is committed is written, whole, before."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from smq.batch import Batch
from smq.cli.app import app
from smq.cli.commands import consume as consume_command
from smq.cli.commands.consume import _leave, _start_timeout, parse_start
from smq.cli.connection.session import set_leader
from smq.cli.files import message_writer
from smq.cli.files.formats import OutputFormat
from smq.cli.files.message_writer import MessageWriter
from smq.cli.files.parquet_parts import ParquetParts
from smq.cli.files.sinks import Offsets, Shown, Sink, open_sink
from smq.cli.times import parse_time
from smq.consuming.reader_losses import data_lost
from smq_core.errors import InvalidRequest
from smq_core.model.loss import Loss
from support.in_memory.topic import rows_of
from support.waiting import HANG_GUARD

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
        return Batch(
            table=rows_of(3), segment=SEGMENT, first_offset=first, positions={SEGMENT: first + 3, "other-0-8-1": 7}
        )

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
    writer = MessageWriter(sink, commits=commits)
    writer.write_all(any_consumer, limit, poll=lambda it: it.poll(0.0))
    return writer.count


def test_a_parquet_file_is_whole_before_its_messages_are_committed(tmp_path: Path) -> None:
    file = tmp_path / "out.parquet"
    consumer = FakeConsumer(file, 3)
    assert consume(consumer, open_sink(OutputFormat.PARQUET, file)) == 9
    assert consumer.commits == [({SEGMENT: 9, "other-0-8-1": 7}, 9)]


@pytest.mark.parametrize("output_format", [OutputFormat.TEXT, OutputFormat.JSON])
def test_lines_are_in_the_file_before_their_batch_is_committed(tmp_path: Path, output_format: OutputFormat) -> None:
    file = tmp_path / "out.txt"
    consumer = FakeConsumer(file, 2)
    consume(consumer, open_sink(output_format, file))
    assert consumer.commits == [({SEGMENT: 3, "other-0-8-1": 7}, 3), ({SEGMENT: 6, "other-0-8-1": 7}, 6)]


@pytest.mark.parametrize("name", ["out.parquet", "out.json"])
def test_only_the_messages_that_were_written_are_committed(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    consumer = FakeConsumer(file, 2)
    assert consume(consumer, open_sink(OutputFormat(file.suffix[1:]), file), limit=4) == 4
    assert consumer.commits[-1] == ({SEGMENT: 4, "other-0-8-1": 7}, 4)


@pytest.mark.parametrize("output_format", [OutputFormat.PARQUET, OutputFormat.JSON])
def test_what_could_not_be_written_is_not_committed(tmp_path: Path, output_format: OutputFormat) -> None:
    file = tmp_path / "out"
    consumer = FakeConsumer(file, 2)
    sink = open_sink(output_format, file)
    sink.stream.close()
    sink.stream = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115
    with pytest.raises(OSError, match="No space"):
        consume(consumer, sink)
    assert consumer.commits == []


class BreakingSink(Sink):
    """As a Parquet file whose second part does not go onto the disk: nobody can read the first part either."""

    flushed = False
    writes = 0

    def write(self, rows: pa.Table, segment: str, offsets: Offsets) -> None:
        self.writes += 1
        if self.writes == 2:
            raise OSError("the disk is full")


def test_nothing_of_a_file_that_broke_is_committed(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    consumer = FakeConsumer(file, 2)
    with file.open("wb") as stream, pytest.raises(OSError, match="the disk is full"):
        consume(consumer, BreakingSink(stream))
    assert consumer.commits == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, InvalidRequest])
def test_what_a_file_has_is_committed_when_the_command_is_ended(tmp_path: Path, error: type[BaseException]) -> None:
    file = tmp_path / "out.parquet"
    consumer = FakeConsumer(file, 2)
    poll = consumer.poll

    def interrupted(timeout: float) -> Batch | None:
        if len(consumer._left) == 1:
            raise error("ended")
        return poll(timeout)

    consumer.poll = interrupted  # type: ignore[method-assign]
    with pytest.raises(error):
        consume(consumer, ParquetParts(file, Shown()))
    assert consumer.commits == [({SEGMENT: 3, "other-0-8-1": 7}, 3)]


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """A shell that started the tests in the background, or Spark in a test before, has set another handler."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


class InterruptedParts(ParquetParts):
    """Gets signals while it writes."""

    signals = 1

    def write(self, rows: pa.Table, segment: str, offsets: Offsets) -> None:
        super().write(rows, segment, offsets)
        for _ in range(self.signals):
            signal.raise_signal(signal.SIGINT)


def test_a_parquet_file_that_is_interrupted_has_what_is_committed(tmp_path: Path) -> None:
    consumer = FakeConsumer(tmp_path / "out.parquet", 2)
    with pytest.raises(KeyboardInterrupt):
        consume(consumer, InterruptedParts(tmp_path / "out.parquet", Shown()))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert consumer.commits == [({SEGMENT: 3, "other-0-8-1": 7}, 3)]


@pytest.mark.parametrize("name", ["out.parquet", "out.txt"])
def test_a_write_that_is_ended_says_that_the_group_gets_its_messages_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    notes: list[str] = []
    monkeypatch.setattr(message_writer, "print_note", notes.append)
    monkeypatch.setattr(InterruptedParts, "signals", 2)
    file = tmp_path / name
    consumer = FakeConsumer(file, 2)
    sink: Sink = InterruptedParts(file, Shown())
    if name == "out.txt":
        sink = open_sink(OutputFormat.TEXT, file)
        monkeypatch.setattr(sink, "write", lambda *_: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        consume(consumer, sink)
    assert consumer.commits == []
    assert notes == ["the output may have messages that are not committed, so the group gets them again"]


def test_the_end_of_a_segment_is_committed_while_a_parquet_file_is_written(tmp_path: Path) -> None:
    file = tmp_path / "out.parquet"
    consumer = FakeConsumer(file, 4)
    any_consumer: Any = consumer
    sink = ParquetParts(file, Shown(meta=True))
    writer = MessageWriter(sink, commits=True)
    commits = []

    def poll(it: FakeConsumer) -> Batch | None:
        before, batch = len(consumer.commits), it.poll(0.0)
        if len(it._left) in (0, 2):
            consumer._file = sink._parts[-1]
            writer.segment_ended(any_consumer, "ended", 5)
        commits.append(len(consumer.commits) - before)
        return batch

    writer.write_all(any_consumer, None, poll)  # type: ignore[arg-type]
    assert commits[:2] == [0, 1] and consumer.commits[0] == ({SEGMENT: 3, "other-0-8-1": 7, "ended": 5}, 3)
    table = pq.read_table(file)
    assert table["_offset"].to_pylist() == list(range(12)), "all parts are in one file, in their order"
    assert [it.name for it in tmp_path.iterdir()] == ["out.parquet"]


def test_parts_after_a_change_of_the_schema_are_refused_and_the_others_are_one_file(tmp_path: Path) -> None:
    sink = ParquetParts(tmp_path / "out.parquet", Shown())
    for n in (1, 2):
        sink.write(pa.table({"n": [n]}), SEGMENT, n)
        sink.complete()
    with pytest.raises(InvalidRequest, match="schema has changed"):
        sink.write(pa.table({"n": [3], "more": [3]}), SEGMENT, 3)
    sink.close()
    assert pq.read_table(tmp_path / "out.parquet").to_pydict() == {"n": [1, 2]}
    assert [it.name for it in tmp_path.iterdir()] == ["out.parquet"]


def test_parts_of_a_process_that_was_killed_stay(tmp_path: Path) -> None:
    others = [tmp_path / name for name in ("out.part2.parquet", "out.merged.parquet", "out.merged1.parquet")]
    for other in others:
        other.write_bytes(b"messages")
    sink = ParquetParts(tmp_path / "out.parquet", Shown())
    for n in (1, 2):
        sink.write(pa.table({"n": [n]}), SEGMENT, n)
        sink.complete()
    sink.close()
    assert [other.read_bytes() for other in others] == [b"messages"] * 3
    assert pq.read_table(tmp_path / "out.parquet").to_pydict() == {"n": [1, 2]}
    assert {*tmp_path.iterdir()} == {tmp_path / "out.parquet", *others}


def test_a_group_writes_parquet_to_files_only() -> None:
    result = CliRunner().invoke(app, ["consume", "t", "--group", "g", "--format", "parquet"])
    assert result.exit_code != 0 and "add --to FILE" in result.output


def test_without_a_group_nothing_is_committed(tmp_path: Path) -> None:
    for name in ("out.parquet", "out.json"):
        consumer = FakeConsumer(tmp_path / name, 2)
        consume(consumer, open_sink(OutputFormat(name[4:]), tmp_path / name), commits=False)
        assert consumer.commits == []


def test_only_messages_of_the_partition_are_written_with_their_own_offsets(tmp_path: Path) -> None:
    class OfPartitions(FakeConsumer):
        def poll(self, timeout: float) -> Batch | None:
            batch = super().poll(timeout)
            if batch is None:
                return None
            table = batch.table.set_column(0, "partition", pa.array([3, 5, 5], pa.int32()))
            return Batch(table=table, segment=batch.segment, first_offset=batch.first_offset, positions=batch.positions)

    file = tmp_path / "out.json"
    any_consumer: Any = OfPartitions(file, 2)
    sink = open_sink(OutputFormat.JSON, file, Shown(meta=True))
    writer = MessageWriter(sink, commits=True, partition=5)
    writer.write_all(any_consumer, 3, lambda it: it.poll(0.0))
    assert writer.count == 3
    assert [json.loads(line)["_offset"] for line in file.read_text().splitlines()] == [1, 2, 4]
    assert any_consumer.commits[-1][0][SEGMENT] == 5, "what was not written is not committed"


@pytest.mark.parametrize(
    ("text", "segments", "start"),
    [
        ("earliest", None, "earliest"),
        ("2024-05-01", None, datetime(2024, 5, 1, tzinfo=UTC)),
        ("2024-05-01T12:00", None, datetime(2024, 5, 1, 12, tzinfo=UTC)),
        ("2024-05-01T12:00:00+02:00", None, datetime(2024, 5, 1, 10, tzinfo=UTC)),
        ("flights-0-1024-0:500", None, {"flights-0-1024-0": 500}),
        ("f-0-4-1:5, f-4-8-2:0", None, {"f-0-4-1": 5, "f-4-8-2": 0}),
        ("120", ["f-0-4-1"], {"f-0-4-1": 120}),
    ],
)
def test_a_start_is_a_word_a_time_or_positions(text: str, segments: list[str] | None, start: object) -> None:
    assert parse_start(text, segments) == start


def test_a_start_may_be_a_while_ago() -> None:
    now = datetime(2024, 5, 1, 12, tzinfo=UTC)
    assert parse_time("-1h30m", "--from", now) == datetime(2024, 5, 1, 10, 30, tzinfo=UTC)


@pytest.mark.parametrize("text", ["yesterday", "-5", "-1y", "120", "f-0-4-1:x", "f-0-4-1:1,f-0-4-1:2", "f-0-4-1:1,x"])
def test_a_start_that_is_none_of_these_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"--from (takes|names)"):
        parse_start(text, None)


def test_a_start_in_the_future_is_refused_but_not_one_by_another_clock() -> None:
    with pytest.raises(InvalidRequest, match=r"--from 2999-01-01 is in the future.*--from latest"):
        parse_start("2999-01-01", None)
    soon = datetime.now(UTC) + timedelta(seconds=30)
    assert parse_start(soon.isoformat(), None) == soon


def test_a_parquet_file_cannot_have_the_columns_of_several_schemas(tmp_path: Path) -> None:
    to = str(tmp_path / "out.parquet")
    ran = CliRunner().invoke(app, ["consume", "t", "--schema", "own", "-o", "parquet", "--to", to])
    assert ran.exit_code == 1
    assert "leave out --schema own" in ran.output
    assert not list(tmp_path.iterdir())


class LosingConsumer:
    """A consumer, and the client that makes it: three messages, then three that are gone, then three more."""

    def at_end(self) -> bool:
        return True

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}
        self.sought: list[Mapping[str, int]] = []
        self._polls = iter((0, "gone", 6, None))

    def consumer(self, topic: str, **options: Any) -> LosingConsumer:
        self.options = options
        return self

    def __enter__(self) -> LosingConsumer:
        return self

    def __exit__(self, *_: object) -> None: ...

    def seek(self, positions: Mapping[str, int]) -> None:
        self.sought.append(positions)

    def poll(self, timeout: float) -> Batch | None:
        found = next(self._polls)
        if isinstance(found, int):
            return Batch(table=rows_of(3), segment=SEGMENT, first_offset=found, positions={SEGMENT: found + 3})
        if found == "gone" and self.options["on_loss"] == "fail":
            raise data_lost(SEGMENT, Loss(3, 6))
        return self.poll(timeout) if found == "gone" else None


def test_messages_that_are_gone_end_it_with_what_to_type_or_are_skipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("smq.cli.commands.consume.client", LosingConsumer)

    some, more = tmp_path / "some.json", tmp_path / "more.json"
    failed = CliRunner().invoke(app, ["consume", "events", "--idle-timeout", "0", "--to", str(some)])
    skipped = CliRunner().invoke(
        app, ["consume", "events", "--idle-timeout", "0", "--to", str(more), "--on-loss", "skip"]
    )

    assert failed.exit_code == 1 and messages_in(some) == 3
    assert f"messages 3..5 of {SEGMENT} are gone" in failed.stderr and "With --on-loss skip" in failed.stderr
    assert "on_loss=" not in failed.stderr and "Poll again" not in failed.stderr
    assert skipped.exit_code == 0 and messages_in(more) == 6


class EmptyConsumer(LosingConsumer):
    def poll(self, timeout: float) -> Batch | None:
        return None


@pytest.mark.parametrize(("options", "says"), [([], True), (["--from", "earliest"], False), (["--group", "g"], False)])
def test_it_says_that_it_began_at_the_end(
    options: list[str], says: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("smq.cli.commands.consume.client", EmptyConsumer)
    ran = CliRunner().invoke(app, ["consume", "events", "-e", "--to", str(tmp_path / "x.txt"), *options])
    assert ran.exit_code == 0 and ("it began at the end of events" in ran.stderr) == says


def test_typed_positions_are_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = LosingConsumer()
    monkeypatch.setattr("smq.cli.commands.consume.client", lambda: made)

    CliRunner().invoke(app, ["consume", "events", "--from", f"{SEGMENT}:2", "--max", "1", "--to", str(tmp_path / "x")])

    assert made.sought == [{SEGMENT: 2}] and made.options["start"] == "earliest"


@pytest.mark.parametrize(("timeout", "seconds"), [(None, 10.0), (3.0, 3.0), (0.0, 1.0), (60.0, 10.0)])
def test_the_filer_has_the_timeout_to_find_the_start(timeout: float | None, seconds: float) -> None:
    set_leader(None)
    assert _start_timeout(timeout) == seconds


def test_a_consumer_whose_request_hangs_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume_command, "LEAVE_SECONDS", 0.0)
    closed, hangs = threading.Event(), threading.Event()

    class Hanging:
        def close(self) -> None:
            closed.set()
            hangs.wait(HANG_GUARD)

    consumer: Any = Hanging()
    _leave(consumer)
    assert closed.wait(HANG_GUARD) and not hangs.is_set()
    hangs.set()
