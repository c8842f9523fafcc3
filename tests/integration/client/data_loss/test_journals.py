"""Processes are killed all at once, and started again on the same folder: what was acked is in their journals."""

from __future__ import annotations

import pytest

from smq_operator.local.journals import BrokerJournals
from support.data.message_ledger import BackgroundPublisher, MessageLedger, check_deliveries, read_back
from support.processes.local_cluster import LocalCluster
from support.waiting import eventually

pytestmark = pytest.mark.integration

NO_FLUSH = {"bytes": "64Mi", "interval": "1h"}


@pytest.mark.slow
def test_nothing_is_lost_if_everything_is_killed_at_once_while_publishing(own_cluster: LocalCluster) -> None:
    own_cluster.create("flights", flush=NO_FLUSH)
    ledger = MessageLedger()
    with (
        own_cluster.connect() as client,
        client.producer("flights", linger=0.0, batch_bytes=2_000, max_in_flight=30_000) as producer,
        client.consumer("flights", on_loss="fail") as consumer,
    ):
        publishing = BackgroundPublisher(producer, ledger)
        for kills in (True, True, False):
            before = publishing.acked
            eventually(lambda before=before: publishing.acked > before + 30)
            if kills:
                own_cluster.kill_all()
                own_cluster.start()
        publishing.stop()
        check_deliveries(ledger, read_back(consumer, ledger.total))
        assert not [s.name for s in client.admin().segments("flights", all=True) if s.lost]


@pytest.mark.slow
def test_brokers_that_should_not_run_any_more_empty_their_journals(own_cluster: LocalCluster) -> None:
    own_cluster.create("flights", flush=NO_FLUSH, segments={"min": 3, "max": 3})
    with own_cluster.connect() as client:
        with client.producer("flights") as producer:
            for number in range(100):
                producer.send(b"%d" % number, key=b"%d" % number)
        own_cluster.kill_all()
        own_cluster.brokers = 1
        own_cluster.start()
        journals = BrokerJournals(own_cluster.folder / "brokers", enabled=True)
        eventually(lambda: set(journals.brokers()) <= {"broker-1"}, what="the others have emptied theirs")
        with client.consumer("flights", start="earliest", on_loss="fail") as consumer:
            found = [value for batch in read_back(consumer, 100) for value in batch.table["value"].to_pylist()]
        assert sorted(found) == sorted(b"%d" % number for number in range(100))
