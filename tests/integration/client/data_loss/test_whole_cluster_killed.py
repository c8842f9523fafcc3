"""``kill -9`` of the leader and all brokers at once, while nothing of what was acked is in the filer yet."""

from __future__ import annotations

from pathlib import Path

import pytest

import smq
from smq_storage.process.seaweedfs import SeaweedProcess
from support.data.message_ledger import MessageLedger, check_deliveries, read_back
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow]
TOPIC = "flights"


def test_nothing_acked_is_lost(seaweed: SeaweedProcess, prefix: str, tmp_path: Path) -> None:
    """The journals have it: a producer goes on, and a reader and a group are given everything once and in order."""
    ledger = MessageLedger()
    with LocalCluster(tmp_path / "cluster", seaweed.settings(prefix)) as cluster, cluster.connect() as client:
        cluster.create(TOPIC, flush={"interval": "1h"}, segments={"min": 2, "max": 2})
        with client.producer(TOPIC, timeout=HANG_GUARD) as producer:
            ledger.send(producer, 500)
            producer.flush(HANG_GUARD)
            committed = commit_some(client)
            cluster.kill_all()
            cluster.start()
            ledger.send(producer, 500)
            producer.flush(HANG_GUARD)
        with client.consumer(TOPIC, start="earliest") as consumer:
            check_deliveries(ledger, read_back(consumer, ledger.total))
        assert read_on(client, ledger.total - committed) == ledger.total - committed
        conditions = client.admin().topic(TOPIC).conditions
        assert all(condition.status == "False" for condition in conditions if condition.type == "DataLoss")


def read_on(client: smq.Client, expected: int) -> int:
    """The member comes back, reads what it has not committed, and commits it. Returns its number of messages."""
    rows = 0
    with client.consumer(TOPIC, group="group", start="earliest") as member:

        def poll() -> bool:
            nonlocal rows
            batch = member.poll(0.1)
            if batch is not None:
                rows += len(batch)
                member.commit()
            return rows >= expected

        eventually(poll, what=f"{expected} messages for the group")
        surplus = member.poll(0.3)
    return rows + (0 if surplus is None else len(surplus))


def commit_some(client: smq.Client) -> int:
    """A member of the group reads a batch and commits it. Returns its number of messages."""
    with client.consumer(TOPIC, group="group", start="earliest") as member:
        batch = member.poll(HANG_GUARD)
        assert batch is not None
        member.commit()
        return len(batch)
