"""The leader dies between the plan of a seal and the seal.

The state lasts only while the leader waits for a paused broker, so a busy machine may miss it. Tests that cannot miss
it check the two halves: a segment takes messages while its successors are planned (test_preopened_sessions), and the
next leader finishes what it finds (test_reconcile_interrupted).
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import smq
from smq_storage.process.seaweedfs import SeaweedProcess
from support.data.message_ledger import MessageLedger, check_deliveries, read_back
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.chaos


def only_segment(client: smq.Client, topic: str) -> smq.SegmentInfo:
    (segment,) = [s for s in client.admin().segments(topic) if s.phase == "open"]
    return segment


def test_a_segment_accepts_messages_until_it_is_sealed(seaweed: SeaweedProcess, prefix: str, tmp_path: Path) -> None:
    """Its successors are planned, but the leader dies before it has anything sealed: publishing does not wait."""
    ledger = MessageLedger()
    with (
        LocalCluster(tmp_path / "cluster", seaweed.settings(prefix)) as cluster,
        cluster.connect() as client,
    ):
        cluster.create("flights")
        with client.producer("flights") as producer:
            ledger.send(producer, 16)
            producer.flush(HANG_GUARD)
            old = only_segment(client, "flights")
            (third,) = cluster.pids().keys() - set(old.brokers)
            pid = cluster.pids()[third]
            os.kill(pid, signal.SIGSTOP)  # the leader waits a moment for it to open the successor
            try:
                client.admin().move("flights", old.name)
                eventually(lambda: client.admin().segments("flights")[0].phase == "sealing", pause=0.001)
                cluster.kill_leader()
            finally:
                os.kill(pid, signal.SIGCONT)
            for _ in range(30):
                ledger.send(producer, 1)
                assert ledger.deliveries[-1].result().segment == old.name
            cluster.start()
            eventually(lambda: only_segment(client, "flights").name != old.name)
            ledger.send(producer, 16)
            producer.flush(HANG_GUARD)
        with client.consumer("flights", start="earliest") as consumer:
            check_deliveries(ledger, read_back(consumer, ledger.total))
