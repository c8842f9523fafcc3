"""What a broker reports: nothing while the disk of its journals does not answer, because it acks nothing then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from smq_broker.journal.disk_activity import DiskActivity, Operation
from smq_broker.leader_client.reports import MAX_DISK_SECONDS, BrokerStatusReporter
from smq_core.errors import Unavailable
from support.in_memory.journaled_brokers import JournaledBrokers


class ReporterWithDisk:
    """A broker's reporter on a disk whose operations take as long as the test says."""

    def __init__(self, folder: Path, during_sleep: Callable[[], None] = lambda: None) -> None:
        self.now = 0.0
        self.disk = DiskActivity(lambda: self.now)
        broker = JournaledBrokers(folder).brokers[0]
        self.reporter = BrokerStatusReporter(
            broker="b",
            registry=broker.registry,
            memory=broker.memory,
            recovered=broker.recovered,
            disk=self.disk,
            sleep=lambda _: during_sleep(),
        )


def test_a_broker_has_no_status_while_the_disk_does_not_answer(tmp_path: Path) -> None:
    it = ReporterWithDisk(tmp_path)
    for user in ("one", "two"):
        it.disk.begin(user)
        it.now += MAX_DISK_SECONDS
    assert it.disk.seconds(it.disk.oldest()) == 2 * MAX_DISK_SECONDS
    with pytest.raises(Unavailable, match="has not answered for 10 s"):
        it.reporter.status()
    it.disk.end("one")
    assert it.reporter.status().segments, "the other operation is not too old yet"


def test_an_operation_that_ends_at_once_was_only_seen_late(tmp_path: Path) -> None:
    it = ReporterWithDisk(tmp_path, lambda: it.disk.end("one"))
    it.disk.begin("one")
    it.now += 2 * MAX_DISK_SECONDS
    assert it.reporter.status().segments


def test_an_operation_within_another_one_of_the_same_journal_is_a_part_of_it() -> None:
    disk = DiskActivity(lambda: 1.0)
    assert disk.begin("journal") and not disk.begin("journal") and disk.begin("other")
    disk.end("other")
    assert disk.oldest() == Operation("journal", 1.0)
