"""Old data is readable from the files alone, without any process of SeaweedMQ."""

from __future__ import annotations

import pyarrow as pa
import pytest

import smq
from support.data.message_ledger import MessageLedger, check_deliveries, read_back
from support.processes.local_cluster import LocalCluster
from support.waiting import eventually

pytestmark = pytest.mark.integration


def test_all_processes_are_dead_and_the_files_are_read(own_cluster: LocalCluster) -> None:
    own_cluster.create("flights", flush={"bytes": "64Ki", "interval": "1s"})
    ledger = MessageLedger()
    with own_cluster.connect() as client:
        with client.producer("flights") as producer:
            ledger.send(producer, 5000)
            producer.flush()
            client.admin().split("flights", "flights-0-64")
            eventually(lambda: len(client.admin().segments("flights")) == 2)
            ledger.send(producer, 5000)
            producer.flush()
        (old,) = [s for s in client.admin().segments("flights", all=True) if s.phase == "sealed"]
        assert old.end is not None and old.end > 0
        names = [s.name for s in client.admin().segments("flights")]
        # What is durable in memory only goes with the brokers: wait for the chunks.
        loads = lambda: [s for b in client.admin().brokers() for s in b.segments if s.primary and s.segment in names]  # noqa: E731
        eventually(lambda: len(loads()) == 2 and all(s.chain_end == s.end > 0 for s in loads()))
    own_cluster.kill_all()
    store = own_cluster.store
    with smq.connect(filer_url=store.url, filer_endpoint=store.endpoint) as files:
        with files.consumer("flights") as consumer:
            batches = read_back(consumer, ledger.total)
            check_deliveries(ledger, batches)
            assert {b.segment for b in batches} == {old.name, *names}
        with pytest.raises(smq.UnknownTopic):
            files.consumer("other")
        assert pa.concat_tables([b.table for b in batches]).num_rows == ledger.total
