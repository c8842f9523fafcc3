"""A consumer reads what real brokers sealed by the file list that they wrote and the leader named."""

from __future__ import annotations

from typing import Any

import pytest

from smq.consuming.fetching import file_fetcher
from smq_core.model.entities import SealedSegment
from smq_storage.catalog import paths, sealed_index, topics
from smq_storage.chunks.chain import ChunkChain
from smq_storage.tables.range_reader import read_range
from smq_storage.tables.segment_files import StoredSegment
from support.data.message_ledger import MessageLedger, check_deliveries, read_back
from support.processes.local_cluster import LocalCluster
from support.waiting import eventually

pytestmark = pytest.mark.integration


def test_a_sealed_segment_is_read_by_its_file_list(own_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[str] = []

    class RecordedChain(ChunkChain):
        def __init__(self, *about: Any) -> None:
            super().__init__(*about)
            walked.append(self.segment)

    monkeypatch.setattr(file_fetcher, "ChunkChain", RecordedChain)
    own_cluster.create("flights", flush={"bytes": "64Ki", "interval": "1s"})
    store = own_cluster.store.open()
    ledger = MessageLedger()
    with own_cluster.connect() as client:
        with client.producer("flights") as producer:
            ledger.send(producer, 20_000)
            producer.flush()
            client.admin().split("flights", "flights-0-64")
            eventually(lambda: len(client.admin().segments("flights")) == 2)
            ledger.send(producer, 1000)
            producer.flush()
        topic = client.admin().topic("flights").name
        current = topics.read_current_topic(store, topic)
        assert current is not None

        def named() -> SealedSegment | None:
            entries = sealed_index.read(store, topic, current.uid)
            return next((entry for entry in entries if entry.file_list), None)

        old = eventually(named, what="the leader has named the file list")
        assert old is not None
        with client.consumer("flights") as consumer:
            check_deliveries(ledger, read_back(consumer, ledger.total))
        assert old.name not in walked, "the file list says which files there are"

        tables = list(read_range(store, StoredSegment.of(topic, current.uid, old), 0, old.end))
        assert sum(table.num_rows for _, table in tables) == old.end
        assert len(tables) > 1, "several chunks were written"
        with client.consumer("flights", start={old.name: old.end - 10}) as consumer:
            batch = consumer.poll(30)
            assert batch is not None and batch.segment == old.name
            assert batch.table.equals(tables[-1][1].slice(tables[-1][1].num_rows - 10))

        store.delete(paths.file_list(topic, current.uid, old.file_list))
        with client.consumer("flights") as consumer:
            check_deliveries(ledger, read_back(consumer, ledger.total))
        assert old.name in walked, "without its file list the chunk chain is walked"
