"""A topic whose autoscaling is paused is not cut by a flood; when it is resumed it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from smq_storage.process.seaweedfs import SeaweedProcess
from support.data.message_ledger import BackgroundPublisher, MessageLedger, check_deliveries, read_back
from support.processes.local_cluster import LocalCluster
from support.waiting import eventually


@pytest.mark.slow
def test_a_flood_does_not_split_a_paused_topic(seaweed: SeaweedProcess, prefix: str, tmp_path: Path) -> None:
    scaling = {"target": {"messagesPerSecond": 20, "bytesPerSecond": "256Mi"}, "splitAfter": "1s"}
    with (
        LocalCluster(tmp_path / "cluster", seaweed.settings(prefix), brokers=2) as cluster,
        cluster.connect() as client,
    ):
        admin = client.admin()
        cluster.create("flood", scaling=scaling)
        admin.pause_scaling("flood")
        assert admin.topic("flood").paused
        ledger = MessageLedger(keys=200)
        with client.producer("flood", linger=0.01) as producer:
            flood = BackgroundPublisher(producer, ledger, at_once=10)

            def withheld_changes() -> bool:
                messages = [c.message for c in admin.topic("flood").conditions]
                return any("load calls for a split of flood-0-64-0" in message for message in messages)

            eventually(withheld_changes, what="load calls for a split")
            # Manual changes still work, and the segments that they open are not split either.
            admin.roll("flood", "flood-0-64")
            eventually(lambda: [s.number for s in admin.segments("flood")] == [1], what="it is rolled")
            more = flood.acked + 200
            eventually(lambda: flood.acked > more, what="the flood continues")
            assert len(admin.segments("flood")) == 1
            assert "split" not in {d.action for d in admin.decisions()}
            assert "seaweedmq.io/autoscaling" in manifest_of(cluster)

            admin.resume_scaling("flood")
            eventually(lambda: len(admin.segments("flood")) > 1, what="it is split at once")
            flood.stop()
        assert [d.action for d in admin.decisions() if d.action.endswith("-scaling")] == [
            "pause-scaling",
            "resume-scaling",
        ]
        with client.consumer("flood", start="earliest") as consumer:
            check_deliveries(ledger, read_back(consumer, ledger.total))


def manifest_of(cluster: LocalCluster) -> str:
    return (cluster.folder / "topics" / "default.flood.yaml").read_text()
