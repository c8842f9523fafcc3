"""A flood on real processes: segments and brokers come by themselves, go again, and no message notices."""

from __future__ import annotations

from pathlib import Path

import pytest

from smq_storage.process.seaweedfs import SeaweedProcess
from support.data.message_ledger import BackgroundPublisher, MessageLedger, check_deliveries, read_back
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD, eventually

# The targets are so low that the flood exceeds them many times on the slowest machine.
ELASTIC = ("--broker-memory", "1Gi", "--max-brokers", "3", "--broker-capacity", "32Ki")


@pytest.mark.slow
def test_a_flood_is_met_and_goes_back(seaweed: SeaweedProcess, prefix: str, tmp_path: Path) -> None:
    scaling = {"target": {"messagesPerSecond": 20, "bytesPerSecond": "256Mi"}, "splitAfter": "2s", "mergeAfter": "8s"}
    with (
        LocalCluster(tmp_path / "cluster", seaweed.settings(prefix), brokers=2, arguments=ELASTIC) as cluster,
        cluster.connect() as client,
    ):
        admin = client.admin()
        cluster.create("flood", scaling=scaling)
        assert len(admin.segments("flood")) == 1
        ledger = MessageLedger(keys=400)
        with client.producer("flood", linger=0.01) as producer:
            flood = BackgroundPublisher(producer, ledger, at_once=10)
            eventually(lambda: len(open_segments(admin)) >= 6, what="six segments")
            flood.stop()
        eventually(lambda: len(open_segments(admin)) == 1, what="one segment again")
        reasons = {s.opened_because for s in admin.segments("flood", all=True)}
        assert {"Split", "Merge"} <= reasons
        with client.consumer("flood", start="earliest") as consumer:
            check_deliveries(ledger, read_back(consumer, ledger.total))


@pytest.mark.slow
def test_brokers_come_with_traffic(seaweed: SeaweedProcess, prefix: str, tmp_path: Path) -> None:
    with (
        LocalCluster(tmp_path / "cluster", seaweed.settings(prefix), brokers=2, arguments=ELASTIC) as cluster,
        cluster.connect() as client,
    ):
        admin = client.admin()
        cluster.create("traffic", segments={"min": 4, "max": 16})
        with client.producer("traffic") as producer:

            def third_broker() -> bool:
                for number in range(100):
                    producer.send(b"x" * 5_000, key=b"%d" % number)
                producer.flush(HANG_GUARD)
                return sum(b.state == "alive" for b in admin.brokers()) == 3

            eventually(third_broker, what="a third broker")
        assert any(d.action == "scale out" for d in admin.decisions())


def open_segments(admin: object) -> list[object]:
    return [s for s in admin.segments("flood") if s.phase == "open"]  # type: ignore[attr-defined]
