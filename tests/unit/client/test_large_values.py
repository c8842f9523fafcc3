"""A consumer reads messages with large values, eagerly and lazily, and reports those that are gone."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from smq.batch import Batch
from smq.consumer import Consumer
from smq.consuming.consumer_options import ConsumerOptions
from smq.consuming.fetching import fetcher as fetcher_module
from smq.transport.dialer import DIRECT, Dialer
from smq.transport.flight_channel import FlightChannel
from smq.transport.reader_channels import ReaderChannels
from smq_core.errors import DataLost, InvalidRequest, StoreUnavailable, Unreachable
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import Replica
from smq_storage.catalog import paths
from smq_storage.chunks.schemas import chunk_schema
from smq_storage.object_store.store import Store
from smq_storage.uploads.large_values import LargeValue
from support.in_memory.brokers import batch_of
from support.in_memory.topic import TopicInMemory
from support.waiting import HANG_GUARD

VALUES = [b"a", b"L" * 3000, b"b", b"M" * 2000, b"N" * 1000, b"c"]
LARGE = [1, 3, 4]
# The chunk with these messages begins at this offset.
FIRST = 2


def object_path(row: int) -> str:
    return paths.large_value("uid", f"p-0-{row}.value")


def messages() -> pa.RecordBatch:
    batch = batch_of(len(VALUES), 0)
    headers: list[list[dict[str, Any]] | None] = [[{"key": "h", "value": b"%d" % row}] for row in range(len(VALUES))]
    headers[3] = None
    values: list[bytes | None] = list(VALUES)
    for row in LARGE:
        name, check = LargeValue.of(f"p-0-{row}.value", VALUES[row]).header()
        headers[row] = [*(headers[row] or ()), {"key": name, "value": check}]
        values[row] = None
    columns = {"value": pa.array(values, pa.binary()), "headers": pa.array(headers, batch.schema.field("headers").type)}
    return pa.RecordBatch.from_arrays(
        [columns.get(n, batch.column(n)) for n in batch.schema.names], schema=batch.schema
    )


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> TopicInMemory:
    """A sealed segment: two messages, then those above, whose objects exist."""
    monkeypatch.setattr(fetcher_module, "MIN_BACKOFF_SECONDS", 0.001)
    made = TopicInMemory()
    segment, end = made.first, FIRST + len(VALUES)
    made.put_chunk(segment, 0, [0] * FIRST)
    info = ChunkInfo(
        segment=segment.name,
        first=FIRST,
        rows=len(VALUES),
        writer="w",
        nonce="n",
        large_values=tuple(f"p-0-{row}.value" for row in LARGE),
    )
    made.chain(segment).put(info, [(messages(), 0)], chunk_schema())
    made.put_seal(segment, end)
    made.seal(segment, end, made.segment(1, predecessors=(segment.name,)))
    for row in LARGE:
        made.files.put(object_path(row), VALUES[row])
    return made


@contextmanager
def consumer_of(topic: TopicInMemory, **options: Any) -> Iterator[Consumer]:
    view: Any = topic
    leader: Any = None
    settings = {"max_bytes": 1 << 20, "start": {topic.first.name: FIRST}}
    with Consumer(
        view=view, groups=leader, options=ConsumerOptions(prefetch_bytes=1 << 20, **(settings | options))
    ) as made:
        yield made


def read(consumer: Consumer, upto: int = FIRST + len(VALUES)) -> list[Batch]:
    batches: list[Batch] = []
    while not batches or batches[-1].next_offset < upto:
        batch = consumer.poll(HANG_GUARD)
        assert batch is not None and (not batches or batch.first_offset == batches[-1].next_offset)
        batches.append(batch)
    return batches


def column(batches: list[Batch], name: str) -> list[Any]:
    return [value for batch in batches for value in batch.table.column(name).to_pylist()]


def test_eager_values_are_in_the_table_and_headers_as_they_were_sent(topic: TopicInMemory) -> None:
    with consumer_of(topic) as consumer:
        batches = read(consumer)
    assert column(batches, "value") == VALUES
    sent = [[{"key": "h", "value": b"%d" % row}] for row in range(len(VALUES))]
    assert column(batches, "headers") == [*sent[:3], None, *sent[4:]]
    assert all(batch.table.schema == chunk_schema() and not batch.large_values for batch in batches)
    assert [batch.value(row) for batch in batches for row in range(len(batch))] == VALUES


def test_eager_batches_count_the_bytes_of_large_values(topic: TopicInMemory) -> None:
    with consumer_of(topic, max_bytes=3200) as consumer:
        sizes = [sum(map(len, column([batch], "value"))) for batch in read(consumer)]
    assert sum(sizes) == sum(map(len, VALUES)) and len(sizes) > 1 and max(sizes) <= 3200


def damage(topic: TopicInMemory, row: int, what: str) -> None:
    topic.files.delete(object_path(row)) if what == "gone" else topic.files.put(object_path(row), b"another value")


@pytest.mark.parametrize("what", ["gone", "altered"])
def test_an_eager_value_that_is_lost_is_reported_with_its_name_and_reading_goes_on(
    topic: TopicInMemory, what: str
) -> None:
    damage(topic, 3, what)
    found: list[bytes] = []
    with consumer_of(topic) as consumer:
        found += column(read(consumer, FIRST + 3), "value")
        with pytest.raises(DataLost, match=f"{object_path(3)} was deleted or altered") as lost:
            consumer.poll(HANG_GUARD)
        assert lost.value.path == object_path(3)
        assert (lost.value.segment, lost.value.start, lost.value.stop) == (topic.first.name, FIRST + 3, FIRST + 4)
        found += column(read(consumer), "value")
    assert found == [*VALUES[:3], *VALUES[4:]]


def test_a_lost_value_is_skipped_if_losses_are(topic: TopicInMemory) -> None:
    damage(topic, 3, "gone")
    with consumer_of(topic, on_loss="skip") as consumer:
        found = column(read(consumer, FIRST + 3), "value")
        found += column(read(consumer), "value")
    assert found == [*VALUES[:3], *VALUES[4:]]


class FlakyStore:
    """The first reads of each object get no answer."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: set[str] = set()

    def get(self, path: str) -> Any:
        if path not in self._seen:
            self._seen.add(path)
            raise StoreUnavailable("away")
        return self._store.get(path)


def test_an_eager_read_waits_for_the_filer(topic: TopicInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic, "open_upload_store", lambda _: FlakyStore(topic.files))
    with consumer_of(topic) as consumer:
        assert column(read(consumer), "value") == VALUES


def test_an_eager_read_goes_on_within_the_chunk_of_an_open_segment(
    topic: TopicInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(replica: Replica, dialer: Dialer) -> FlightChannel:
        raise Unreachable(f"{replica.address} cannot be reached")

    monkeypatch.setattr(topic, "open_upload_store", lambda _: FlakyStore(topic.files))
    monkeypatch.setattr(topic, "reader_channels", ReaderChannels(topic.name, DIRECT, refuse))
    monkeypatch.setattr(topic, "dialer", DIRECT)
    topic.sealed.clear()
    topic.set_layout([topic.first])  # no entry of the index says where its chunks end, and no replica answers
    with consumer_of(topic) as consumer:
        assert column(read(consumer), "value") == VALUES


def test_lazy_values_are_fetched_one_by_one(topic: TopicInMemory) -> None:
    with consumer_of(topic, large_values="lazy") as consumer:
        (batch,) = read(consumer)
    assert batch.large_values == {row: len(VALUES[row]) for row in LARGE}
    assert column([batch], "value") == [None if row in LARGE else value for row, value in enumerate(VALUES)]
    assert [batch.value(row) for row in range(len(batch))] == VALUES
    for row in (-1, len(VALUES)):
        with pytest.raises(IndexError):
            batch.value(row)


@pytest.mark.parametrize("mode", ["eager", "lazy"])
def test_a_batch_can_be_pickled(topic: TopicInMemory, mode: str) -> None:
    with consumer_of(topic, large_values=mode) as consumer:
        for batch in read(consumer):
            copy = pickle.loads(pickle.dumps(batch))
            assert copy == batch
            for row in range(len(batch)):
                if row in batch.large_values:
                    with pytest.raises(InvalidRequest, match="fetch it before"):
                        copy.value(row)
                else:
                    assert copy.value(row) == batch.value(row)


@pytest.mark.parametrize("what", ["gone", "altered"])
def test_a_lazy_value_that_is_lost_concerns_its_message_only(topic: TopicInMemory, what: str) -> None:
    damage(topic, 3, what)
    with consumer_of(topic, large_values="lazy") as consumer:
        (batch,) = read(consumer)
    for _ in range(2):
        with pytest.raises(DataLost, match=f"message {FIRST + 3} .*{object_path(3)} .*{what}"):
            batch.value(3)
    assert batch.value(4) == VALUES[4]


def test_a_lazy_batch_reports_a_filer_that_is_away(topic: TopicInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic, "open_upload_store", lambda _: FlakyStore(topic.files))
    with consumer_of(topic, large_values="lazy") as consumer:
        (batch,) = read(consumer)
    with pytest.raises(StoreUnavailable):
        batch.value(1)
    assert batch.value(1) == VALUES[1]


def test_messages_of_a_schema_have_no_value() -> None:
    batch = Batch(table=pa.table({"text": ["a"], "headers": [None]}), segment="s", first_offset=0, positions={})
    with pytest.raises(InvalidRequest, match="columns of the table"):
        batch.value(0)
    assert not batch.large_values


def test_only_eager_and_lazy_exist(topic: TopicInMemory) -> None:
    with pytest.raises(InvalidRequest, match="large_values"), consumer_of(topic, large_values="never"):
        pass
