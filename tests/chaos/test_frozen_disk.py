"""The disk of one broker's journal stops answering while producers write: their segments move to the other brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from smq_storage.process.seaweedfs import SeaweedProcess
from support.data.message_ledger import BackgroundPublisher, MessageLedger, check_deliveries, read_back
from support.fault_injection.freezing_disk import freezing_disk, unavailable_reason
from support.processes.local_cluster import LocalCluster
from support.waiting import eventually

FROZEN = "broker-1"
pytestmark = [
    pytest.mark.chaos,
    pytest.mark.skipif(unavailable_reason() is not None, reason=unavailable_reason() or ""),
]


@pytest.mark.parametrize("at_once", [2, 2_000], ids=["small records", "large records"])
def test_segments_leave_a_broker_whose_disk_does_not_answer(
    seaweed: SeaweedProcess, prefix: str, tmp_path: Path, at_once: int
) -> None:
    """A small write to the journal stops the whole broker, a large one only what waits for it."""
    ledger = MessageLedger()
    folder = tmp_path / "cluster"
    with (
        freezing_disk(tmp_path / "disk", folder / "brokers" / FROZEN / "journal") as disk,
        LocalCluster(folder, seaweed.settings(prefix)) as cluster,
        cluster.connect() as client,
    ):
        admin = client.admin()

        def brokers_of_open_segments() -> set[str]:
            return {name for it in admin.segments("orders") if it.phase == "open" for name in it.brokers}

        cluster.create("orders", segments={"min": 6, "max": 6})
        eventually(lambda: len([it for it in admin.segments("orders") if it.phase == "open"]) == 6)
        assert FROZEN in brokers_of_open_segments()
        with client.producer("orders", max_in_flight=1 << 22) as producer:
            publisher = BackgroundPublisher(producer, ledger, at_once=at_once)
            eventually(lambda: publisher.acked > 30)
            disk.freeze()
            try:
                eventually(lambda: FROZEN not in brokers_of_open_segments(), what="open segments elsewhere")
                acked = publisher.acked
                eventually(lambda: publisher.acked > acked + 30, what="acks while the disk is frozen")
            finally:
                disk.thaw()  # before the cluster ends, because its broker cannot while the disk is frozen
            eventually(lambda: all(it.state == "alive" for it in admin.brokers()), what="the broker is back")
            print(f"\nlongest time without an ack: {publisher.stop():.2f} s; {ledger.total} messages")
        with client.consumer("orders", start="earliest") as consumer:
            check_deliveries(ledger, read_back(consumer, ledger.total))
