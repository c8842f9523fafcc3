"""Flights in a topic, and what Spark's jobs make of them: a stream of hours, and a compaction that changes no row."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from pyarrow import fs

import smq
from e2e.release import SPACE, Release, unique
from smq_storage.catalog import sealed_index
from smq_storage.catalog.topics import read_current_topic
from smq_storage.object_store.store import StoreSettings
from support.data.message_ledger import read_back
from support.waiting import HANG_GUARD, eventually

RESULT = Path(__file__).parents[2] / "examples" / "topics" / "flights-hourly.yaml"
LEADER = f"--leader=smq.{SPACE}.svc:7070"
BUCKET = "pipeline"
# What a trial changes in the stream's example.
STREAM_SETTINGS = {
    "spark.hadoop.fs.s3a.endpoint": f"http://smq-seaweedfs.{SPACE}.svc:8333",
    "spark.hadoop.fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider",
    "spark.sql.shuffle.partitions": "2",
}

BEGAN = datetime(2013, 1, 1, tzinfo=UTC)
CARRIERS = ["AA", "UA", "WN"]
# All flights are within them, so that none is late however far segments are read apart.
MINUTES = 600

SPEC: dict[str, Any] = {
    "partitions": 64,
    "key": "tailnum",
    "schema": [
        {"name": "tailnum", "type": "string"},
        {"name": "flight", "type": "int64"},
        {"name": "carrier", "type": "string"},
        {"name": "time_hour", "type": "timestamp[us, UTC]"},
        {"name": "dep_delay", "type": "float64", "nullable": True},
        {"name": "note", "type": "string"},
    ],
    "segments": {"min": 2, "max": 4},
    "flush": {"interval": "1s"},
}


def hour_and_carrier(number: int) -> tuple[datetime, str]:
    return BEGAN + timedelta(hours=number % MINUTES // 60), CARRIERS[number % 3]


def is_cancelled(number: int) -> bool:
    return number % 7 == 0


def flights(numbers: range, note: str = "") -> pa.Table:
    """The numbers of each plane rise."""
    times = [BEGAN + timedelta(minutes=number % MINUTES) for number in numbers]
    return pa.table(
        {
            "tailnum": [f"N{number % 40}" for number in numbers],
            "flight": pa.array(numbers, pa.int64()),
            "carrier": [CARRIERS[number % 3] for number in numbers],
            "time_hour": pa.array(times, pa.timestamp("us", tz="UTC")),
            "dep_delay": pa.array([None if is_cancelled(n) else float(n % 11) for n in numbers], pa.float64()),
            "note": [note] * len(numbers),
        }
    )


class Publisher:
    """Publishes numbered flights. ``ends`` are the offsets after the last one, by segment."""

    def __init__(self, producer: smq.Producer) -> None:
        self._producer = producer
        self.sent = 0
        self.ends: dict[str, int] = {}

    def send(self, count: int, note: str = "") -> None:
        """Returns when they are acked."""
        self.publish(flights(range(self.sent, self.sent + count), note))
        self.sent += count

    def publish(self, table: pa.Table) -> None:
        receipt = self._producer.write(table).result(HANG_GUARD)
        for index, offset in zip(receipt.segment_index, receipt.offsets, strict=True):
            name = receipt.segments[index]
            self.ends[name] = max(self.ends.get(name, 0), int(offset) + 1)


@contextmanager
def published(release: Release, topic: str) -> Iterator[tuple[smq.Client, Publisher]]:
    with release.connect() as client, client.producer(topic, timeout=HANG_GUARD) as producer:
        yield client, Publisher(producer)


class PipelineFolder:
    """What a stream writes to the object store: its checkpoint and its table."""

    def __init__(self, release: Release, name: str) -> None:
        address = release.address("smq-seaweedfs", 8333)
        reach = {"endpoint_override": address, "scheme": "http", "region": "us-east-1"}
        self._files = fs.S3FileSystem(anonymous=True, allow_bucket_creation=True, **reach)
        self._files.create_dir(BUCKET)
        self._folder = f"{BUCKET}/{name}"
        self.url = f"s3a://{self._folder}"

    def positions(self) -> dict[str, int]:
        """Where the aggregation is in the topic, after its last finished micro-batch."""
        finished = self._numbers("checkpoint/aggregation/commits")
        if not finished:
            return {}
        written = self._read(f"{self._folder}/checkpoint/aggregation/offsets/{max(finished)}")
        found: dict[str, int] = json.loads(written.splitlines()[-1])["positions"]
        return found

    def table(self) -> pa.Table:
        """The rows of the files that Spark has committed. Raises ValueError if there are none yet."""
        paths: set[str] = set()
        for info in self._list("table/_spark_metadata"):
            for line in self._read(info.path).splitlines()[1:]:
                paths.add(json.loads(line)["path"].removeprefix("s3a://"))
        tables = [pq.read_table(path, filesystem=self._files) for path in sorted(paths)]
        if not tables:
            raise ValueError(f"no table in {self.url} yet")
        return pa.concat_tables(tables)

    def _numbers(self, folder: str) -> list[int]:
        return [int(info.base_name) for info in self._list(folder) if info.base_name.isdigit()]

    def _list(self, folder: str) -> list[fs.FileInfo]:
        selector = fs.FileSelector(f"{self._folder}/{folder}", allow_not_found=True)
        return [info for info in self._files.get_file_info(selector) if not info.base_name.startswith(".")]

    def _read(self, path: str) -> str:
        with self._files.open_input_stream(path) as file:
            return file.read().decode()


def rows_of(table: pa.Table) -> Counter[tuple[datetime, str, int, int]]:
    names = ("hour", "carrier", "flights", "cancelled")
    hours = table["hour"].cast(pa.timestamp("us", "UTC"))  # Spark's Parquet files have nanoseconds without a zone
    table = table.set_column(table.schema.get_field_index("hour"), "hour", hours)
    return Counter(tuple(row[name] for name in names) for row in table.select(names).to_pylist())


def expected_rows(sent: int) -> Counter[tuple[datetime, str, int, int]]:
    """Each hour of each carrier once."""
    counted = Counter(hour_and_carrier(number) for number in range(sent))
    cancelled = Counter(hour_and_carrier(number) for number in range(sent) if is_cancelled(number))
    return Counter((hour, carrier, count, cancelled[hour, carrier]) for (hour, carrier), count in counted.items())


class FlightStream:
    """A topic of flights with a publisher, and the topic and the table of hours that the stream makes of it."""

    def __init__(self, release: Release, client: smq.Client, publisher: Publisher, topic: str) -> None:
        self.topic, self.result = topic, unique("hourly")
        self.publisher = publisher
        self._client = client
        self._folder = PipelineFolder(release, topic)
        release.topic(self.result, **yaml.safe_load(RESULT.read_text())["spec"])

    @property
    def arguments(self) -> list[str]:
        """Those of the job."""
        places = [f"--table={self._folder.url}/table", f"--checkpoint={self._folder.url}/checkpoint"]
        return [f"--topic={SPACE}/{self.topic}", f"--result={SPACE}/{self.result}", *places, LEADER]

    def all_is_read(self) -> bool:
        """Whether the stream has read what is in each open segment."""
        opened = {segment.name for segment in self._client.admin().segments(self.topic)}
        if not opened <= self.publisher.ends.keys():
            self.publisher.send(100)  # a segment without messages says nothing about those before it
            return False
        positions = self._folder.positions()
        return all(positions.get(name, 0) >= self.publisher.ends[name] for name in opened)

    def check(self) -> int:
        """Ends all hours by a flight of days later. Then each hour of each carrier is in topic and table once."""
        sent = self.publisher.sent
        after = flights(range(sent, sent + 1))
        days_later = pa.array([BEGAN + timedelta(days=3)], pa.timestamp("us", tz="UTC"))
        self.publisher.publish(after.set_column(after.schema.get_field_index("time_hour"), "time_hour", days_later))
        expected = expected_rows(sent)
        with self._client.consumer(self.result, start="earliest") as consumer:
            found = pa.concat_tables([batch.table for batch in read_back(consumer, len(expected))])
        assert rows_of(found) == expected
        eventually(lambda: len(self._folder.table()) >= len(expected), what="the table has the hours", pause=0.5)
        assert rows_of(self._folder.table()) == expected
        return len(expected)


@contextmanager
def flight_stream(release: Release) -> Iterator[FlightStream]:
    topic = unique("flights")
    release.topic(topic, **SPEC)
    with published(release, topic) as (client, publisher):
        yield FlightStream(release, client, publisher, topic)


def check_compaction(
    release: Release, run: Callable[[Sequence[str]], str], read: Callable[[Release, str, int], object]
) -> None:
    """``run`` compacts a topic with these arguments of the job, and returns the driver's log. It changes no row.

    ``read`` is given the topic and its number of rows. It checks that each is there once, and returns what they are.
    """
    topic = unique("compact")
    # A chunk file of each segment in each turn; the last messages are in no file when they are read.
    release.topic(topic, **SPEC | {"flush": {"bytes": "64Ki", "interval": "10m"}, "segments": {"min": 2, "max": 2}})
    names = [f"--topic={SPACE}/{topic}", LEADER]
    with published(release, topic) as (client, publisher):
        admin = client.admin()
        for _ in range(3):
            before = chain_ends(client, topic)
            publisher.send(600, note=f"{publisher.sent:0500d}")
            eventually(lambda old=before: is_flushed(client, topic, old), what="both segments are flushed", pause=0.2)
        for segment in admin.segments(topic):
            admin.roll(topic, segment.name)
        filer = f"http://{release.address('smq-seaweedfs', 8333)}"
        store, name = StoreSettings(url="s3://smq", endpoint=filer).open(), f"{SPACE}/{topic}"
        current = read_current_topic(store, name)
        assert current is not None

        def file_lists() -> int:
            return sum(bool(entry.file_list) for entry in sealed_index.read(store, name, current.uid))

        eventually(lambda: file_lists() == 2, what="the sealed segments have file lists", pause=0.2)
        publisher.send(100)
        first = read(release, topic, publisher.sent)
        said = run(names)
        merged = [tuple(map(int, it)) for it in re.findall(r"(\d+) files, .* became (\d+)$", said, re.M)]
        assert len(merged) == 2 and all(before > after == 1 for before, after in merged), said
        assert read(release, topic, publisher.sent) == first
    print(f"\n{topic}: {publisher.sent} messages are the same, before and after {merged} files")


def chain_ends(client: smq.Client, topic: str) -> dict[str, int]:
    """The offsets after the last one in a file, of the open segments."""
    admin = client.admin()
    loads = {load.segment: load.chain_end for broker in admin.brokers() for load in broker.segments if load.primary}
    return {segment.name: loads.get(segment.name, 0) for segment in admin.segments(topic)}


def is_flushed(client: smq.Client, topic: str, before: dict[str, int]) -> bool:
    ends = chain_ends(client, topic)
    return len(ends) == 2 and all(end > before.get(name, 0) for name, end in ends.items())


def all_rows(release: Release, topic: str, rows: int) -> object:
    """What a consumer reads from the earliest message on: each flight once. Its rows, sorted."""
    with release.connect() as client, client.consumer(topic, start="earliest") as consumer:
        read = pa.concat_tables([batch.table for batch in read_back(consumer, rows)])
    table = read.select([field["name"] for field in SPEC["schema"]]).sort_by("flight")
    assert table["flight"].to_pylist() == list(range(rows))
    return table.to_pydict()
