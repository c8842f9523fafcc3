"""What a broker reports: nothing while the disk of a journal does not answer, because it acks nothing then."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from smq_broker.leader_client.reports import MAX_DISK_SECONDS
from smq_core.errors import Unavailable
from smq_proto.v1.leader_pb2 import Empty
from support.in_memory.journaled_brokers import JournaledBrokers


def test_a_broker_has_no_status_while_the_disk_of_a_journal_does_not_answer(tmp_path: Path) -> None:
    brokers = JournaledBrokers(tmp_path)
    broker = brokers.brokers[0]
    journal = broker.hosted(brokers.topic, brokers.segment).journal
    assert journal is not None
    with journal.lock:
        journal.busy_since = time.monotonic() - MAX_DISK_SECONDS - 0.1
        with pytest.raises(Unavailable, match="has not answered for 2 s"):
            broker.action("status", Empty())
        journal.busy_since = time.monotonic() + 3600
        assert broker.action("status", Empty()) is not None, "an operation that has just begun"
        journal.busy_since = None
        assert broker.action("status", Empty()) is not None
