"""Spark on nodes: `spark-submit` in cluster mode, executors as Pods, topics of a release in another Namespace."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pyarrow import fs

import smq
from e2e.release import SPACE, Release, unique
from e2e.spark_applications import SparkApplications, documented_settings
from smq_core.errors import SmqError
from smq_storage.catalog import sealed_index
from smq_storage.catalog.topics import read_current_topic
from smq_storage.object_store.store import StoreSettings
from support.data.message_ledger import read_back
from support.waiting import HANG_GUARD, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1800)]
RESULT = Path(__file__).parents[2] / "examples" / "topics" / "flights-hourly.yaml"
LEADER = f"--leader=smq.{SPACE}.svc:7070"
BUCKET = "pipeline"
ANONYMOUS = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
BEGAN = datetime(2013, 1, 1, tzinfo=UTC)
CARRIERS = ["AA", "UA", "WN"]
MINUTES = 600
"""All flights are within them, so that none is late however far segments are read apart."""

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
        address = f"{release.service('smq-seaweedfs')}:8333"
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


def test_a_stream_goes_on_while_the_brokers_are_replaced(release: Release, spark: SparkApplications) -> None:
    topic, result, driver = unique("flights"), unique("hourly"), unique("stream")
    release.topic(topic, **SPEC)
    release.topic(result, **yaml.safe_load(RESULT.read_text())["spec"])
    folder = PipelineFolder(release, topic)
    settings = spark.example("flights-hourly") | {
        "spark.hadoop.fs.s3a.endpoint": f"http://smq-seaweedfs.{SPACE}.svc:8333",
        "spark.hadoop.fs.s3a.aws.credentials.provider": ANONYMOUS,
        "spark.sql.shuffle.partitions": "2",
    }
    places = [f"--table={folder.url}/table", f"--checkpoint={folder.url}/checkpoint"]
    began = time.monotonic()
    names = [f"--topic={SPACE}/{topic}", f"--result={SPACE}/{result}"]
    spark.submit(driver, "flights_hourly", *names, *places, LEADER, settings=settings)
    with spark.running(driver), published(release, topic) as (client, publisher):

        def all_is_read() -> bool:
            if spark.ended(driver):
                pytest.fail("the driver of the stream has ended")
            opened = {segment.name for segment in client.admin().segments(topic)}
            if not opened <= publisher.ends.keys():
                publisher.send(100)  # a segment without messages says nothing about those before it
                return False
            positions = folder.positions()
            return all(positions.get(name, 0) >= publisher.ends[name] for name in opened)

        def replaced() -> bool:
            try:
                publisher.send(100)
            except SmqError as error:  # some may be in the topic, so sending them again would double them
                pytest.fail(f"flights could not be published: {error}")
            return release.rolled_out()

        publisher.send(MINUTES)
        eventually(all_is_read, what="the first flights are read", pause=0.5)
        started = time.monotonic() - began
        brokers = {pod["metadata"]["uid"] for pod in release.pods("broker")}
        release.kube.kubectl("-n", SPACE, "rollout", "restart", "deployment/smq-broker")
        eventually(replaced, what="the brokers are replaced", pause=0.1)
        assert not brokers & {pod["metadata"]["uid"] for pod in release.pods("broker")}
        publisher.send(MINUTES)
        eventually(all_is_read, what="all flights are read", pause=0.5)
        after = flights(range(publisher.sent, publisher.sent + 1))
        days_later = pa.array([BEGAN + timedelta(days=3)], pa.timestamp("us", tz="UTC"))
        publisher.publish(after.set_column(after.schema.get_field_index("time_hour"), "time_hour", days_later))
        expected = expected_rows(publisher.sent)
        with client.consumer(result, start="earliest") as consumer:
            found = pa.concat_tables([batch.table for batch in read_back(consumer, len(expected))])
        assert rows_of(found) == expected
        eventually(lambda: len(folder.table()) >= len(expected), what="the table has the hours", pause=0.5)
        assert rows_of(folder.table()) == expected
        pod = spark.driver(driver)
        assert spark.ended(driver) is None and pod["status"]["containerStatuses"][0]["restartCount"] == 0
    print(
        f"\n{topic}: {publisher.sent} flights in {len(expected)} hours of carriers, each once, in topic and table; the "
        f"first were read {started:.0f} s after the submission"
    )


def test_the_compaction_changes_no_row(release: Release, spark: SparkApplications) -> None:
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
        filer = f"http://{release.service('smq-seaweedfs')}:8333"
        store, name = StoreSettings("s3://smq", endpoint=filer).open(), f"{SPACE}/{topic}"
        current = read_current_topic(store, name)
        assert current is not None

        def manifests() -> int:
            return sum(bool(entry.manifest) for entry in sealed_index.read(store, name, current.uid))

        eventually(lambda: manifests() == 2, what="the sealed segments have manifests", pause=0.2)
        publisher.send(100)
        first = verified(spark, unique("verify"), names, publisher.sent)
        compaction = unique("compact")
        spark.submit(compaction, "compact", *names, settings=spark.example("compact"))
        merged = [
            tuple(map(int, it)) for it in re.findall(r"(\d+) files, .* became (\d+)$", spark.finish(compaction), re.M)
        ]
        assert len(merged) == 2 and all(before > after == 1 for before, after in merged), spark.describe(compaction)
        assert verified(spark, unique("verify"), names, publisher.sent) == first
    print(f"\n{topic}: {publisher.sent} messages, checksum {first}, before and after {merged} files")


def chain_ends(client: smq.Client, topic: str) -> dict[str, int]:
    """The offsets after the last one in a file, of the open segments."""
    admin = client.admin()
    loads = {load.segment: load.chain_end for broker in admin.brokers() for load in broker.segments if load.primary}
    return {segment.name: loads.get(segment.name, 0) for segment in admin.segments(topic)}


def is_flushed(client: smq.Client, topic: str, before: dict[str, int]) -> bool:
    ends = chain_ends(client, topic)
    return len(ends) == 2 and all(end > before.get(name, 0) for name, end in ends.items())


def verified(spark: SparkApplications, driver: str, arguments: list[str], rows: int) -> str:
    """Reads the topic by a job and checks that each message is there once, in order. The checksum of the rows."""
    spark.submit(driver, "verify", *arguments, "--sequence=flight", settings=documented_settings())
    said = spark.finish(driver)
    found = re.search(r"(\d+) rows, checksum ([0-9a-f]{16}): whole", said)
    assert found is not None and int(found[1]) == rows, spark.describe(driver)
    return found[2]
