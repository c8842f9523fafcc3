"""Times that Python does not have: nothing of a call with one is published, and a log with some can be read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, timezone

import pyarrow as pa
import pytest

import smq
from smq_storage.conversion import exact_cast
from support.data.message_ledger import read_back
from support.processes.cli import smq as run_smq
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration

# Far beyond the year 9999: what `time_ns()` gives as microseconds, and the infinity of DuckDB.
LATE = [1_700_000_000_000_000_000, (1 << 63) - 1]
COLUMNS = [{"name": "id", "type": "int64"}, {"name": "at", "type": "timestamp[us, UTC]", "nullable": True}]
TABLE = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)
REFUSED = r"column at, row 1: .* Python has only the years 1 to 9999.*\nThis is message 1 of 3, .* None of them was"


@pytest.mark.parametrize(
    "late",
    [pa.scalar(LATE[0], TABLE.field("at").type), LAST.replace(tzinfo=timezone(-timedelta(hours=9)))],
    ids=["beyond every year", "beyond 9999 in its zone"],
)
def test_nothing_of_a_group_with_such_a_time_is_published(
    cluster: LocalCluster, client: smq.Client, topic: str, late: object
) -> None:
    cluster.create(topic, key="id", schema=COLUMNS)
    with client.producer(topic) as producer:
        with pytest.raises(smq.SchemaMismatch, match=REFUSED):
            producer.send_many([{"id": 1, "at": NOW}, {"id": 2, "at": late}, {"id": 3, "at": None}])
        receipt = producer.send_many([{"id": 4, "at": LAST}, {"id": 5, "at": NOW}]).result(HANG_GUARD)
        assert receipt.offsets.tolist() == [0, 1], "these are the first messages of the topic"
        with client.consumer(topic, start="earliest") as consumer:
            messages = [message.value for batch in read_back(consumer, 2) for message in batch]
    assert messages == [{"id": 4, "at": LAST}, {"id": 5, "at": NOW}]


def test_such_messages_are_read_listed_and_skipped(
    cluster: LocalCluster, client: smq.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create(topic, key="id", schema=COLUMNS, segments={"min": 1, "max": 2})
    with monkeypatch.context() as patch, client.producer(topic) as producer:
        patch.setattr(exact_cast, "all_in_python", lambda _: True)  # as a client in another language
        producer.write(pa.table([[0, 1, 2], [0, *LATE]], TABLE)).result(HANG_GUARD)
    check_all_readers(cluster, client, topic, "tail")

    (segment,) = client.admin().segments(topic)
    client.admin().split(topic, segment.name)
    eventually(
        lambda: [s for s in client.admin().segments(topic, all=True) if s.phase == "sealed"], what="it is sealed"
    )
    check_all_readers(cluster, client, topic, "files")
    assert client.files(topic).dataset().to_table()["at"].cast(pa.int64()).to_pylist() == [0, *LATE]
    assert run_smq("files", topic, leader=cluster.address).code == 0


def check_all_readers(cluster: LocalCluster, client: smq.Client, topic: str, group: str) -> None:
    """A group reads all, commits, and goes on behind them; the command line prints them."""
    with client.consumer(topic, group=group, start="earliest") as consumer:
        batches = read_back(consumer, 3)
        consumer.commit()
    assert [at for batch in batches for at in exact(batch.table["at"])] == [0, *LATE]
    assert [message.value["at"] for batch in batches for message in batch] == [time(0), LAST, LAST]

    lines = run_smq(
        "consume", topic, "--from", "earliest", "--max", "3", "--format", "json", leader=cluster.address
    ).lines
    assert [json.loads(line)["id"] for line in lines] == [0, 1, 2]

    described = run_smq("group", "describe", topic, group, leader=cluster.address)
    assert described.code == 0 and "Lag:         0" in described.out, described


def exact(times: pa.ChunkedArray) -> Iterable[int]:
    found: list[int] = times.cast(pa.int64()).to_pylist()
    return found


def time(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / 1e6, UTC)
