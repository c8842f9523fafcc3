"""Batches with large values at a primary: which are rejected, and where the names of their objects go."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from smq_broker.leader_client.reports import segment_report
from smq_broker.producers.upload_checker import MAX_LARGE_VALUES_PER_BATCH
from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.errors import InvalidRequest, ReferenceRejected
from smq_core.model.entities import SECOND
from smq_proto.error_conversion import error_from_pb
from smq_storage.catalog import paths
from smq_storage.tables.file_lists import read_file_list
from support.data.raw_flight import rows
from support.data.stored_segment import file_list_of_chain
from support.in_memory.broker_parts import ProducerClient
from support.in_memory.journaled_brokers import JournaledBrokers
from support.waiting import HANG_GUARD, eventually

NAMES = ["p-0-a.value", "p-0-b.value", "p-0-c.value"]


class Brokers(JournaledBrokers):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.hosted = self.brokers[0].hosted(self.topic, self.segment)
        for name in NAMES:
            self.store.put(paths.large_value(self.topic.uid, name), b"large")

    def produce(self) -> ProducerClient:
        return self.brokers[0].produce(self.topic, self.segment, "p")

    def names(self) -> list[tuple[int, tuple[str, ...]]]:
        """The first offset of each chunk that names large values, and the names."""
        return [(it.first, it.large_values) for it in self.chain.walk() if it.large_values]


@pytest.fixture
def brokers(tmp_path: Path) -> Brokers:
    return Brokers(tmp_path)


def send(producer: ProducerClient, sequence: int, names: Iterable[str] = (), rejections: int = 0) -> None:
    producer.send(sequence, rows([b"v%d" % sequence]), rejections=rejections, large_values=names)


def send_three(brokers: Brokers) -> None:
    producer = brokers.produce()
    send(producer, 0, NAMES[:1])
    send(producer, 1)
    send(producer, 2, NAMES[1:])
    assert [producer.wait_acked(n) for n in range(3)] == [0, 1, 2]


def test_the_names_are_replicated_and_count_as_memory(brokers: Brokers) -> None:
    send_three(brokers)
    follower = brokers.brokers[1].hosted(brokers.topic, brokers.segment)
    eventually(lambda: follower.machine.watermark == 3)
    for hosted in (brokers.hosted, follower):
        entries = list(hosted.machine.tail)
        assert [it.batch.large_values for it in entries] == [tuple(NAMES[:1]), (), tuple(NAMES[1:])]
        assert entries[2].batch.nbytes - entries[1].batch.nbytes >= sum(map(len, NAMES[1:]))


def test_a_chunk_and_the_file_list_have_the_names_of_all_their_batches(brokers: Brokers) -> None:
    send_three(brokers)
    brokers.flush()
    assert brokers.names() == [(0, tuple(NAMES))]
    brokers.brokers[0].seal(brokers.topic, brokers.segment)
    brokers.brokers[0].file_lists.write_next()
    name = paths.file_list_name(brokers.segment.name, 0)
    file_list = read_file_list(brokers.store, brokers.topic.name, brokers.topic.uid, name)
    assert file_list is not None and file_list == file_list_of_chain(brokers.chain)
    assert [file.large_values for file in file_list.files] == [tuple(NAMES)]


@pytest.mark.parametrize("number", [0, 1])
def test_a_seal_by_any_replica_writes_the_names(brokers: Brokers, number: int) -> None:
    send_three(brokers)
    brokers.brokers[number].seal(brokers.topic, brokers.segment)
    assert brokers.names() == [(0, tuple(NAMES))]


@pytest.mark.parametrize("number", [0, 1])
def test_a_seal_from_any_journal_writes_the_names(brokers: Brokers, number: int) -> None:
    send_three(brokers)
    brokers.restart()
    assert brokers.seal_recovered(number, 3).end == 3
    assert brokers.names() == [(0, tuple(NAMES))]


def rejection(producer: ProducerClient) -> ReferenceRejected:
    error = error_from_pb(producer.wait_reply("rejected").rejected.error)
    assert isinstance(error, ReferenceRejected)
    return error


@pytest.mark.parametrize("name", ["p-0-d.value", "../p-0-a.value", "p-0-a.parquet", ""])
def test_a_batch_whose_object_is_missing_is_rejected_and_the_session_goes_on(brokers: Brokers, name: str) -> None:
    producer = brokers.produce()
    send(producer, 0, [NAMES[0], name])
    error = rejection(producer)
    assert (error.upload, error.field) == (name, "upload")
    send(producer, 0, rejections=1)
    assert producer.wait_acked(0) == 0
    brokers.flush()
    assert not brokers.names()


def test_an_old_object_is_rejected_and_a_repeat_is_not(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = brokers.produce()
    send(producer, 0, NAMES[:1])
    producer.wait_acked(0)
    producer.close()
    checker = brokers.brokers[0].uploads
    now = checker._now()
    monkeypatch.setattr(checker, "_now", lambda: now + brokers.hosted.max_upload_age + 2 * SECOND)
    again = brokers.produce()
    send(again, 0, NAMES[:1])
    assert again.wait_acked(0) == 0
    send(again, 1, NAMES[1:])
    assert rejection(again).field == "age"
    assert brokers.hosted.machine.end == 1


def ends_with(brokers: Brokers, names: Iterable[str], before: Callable[[], None] = lambda: None) -> Exception:
    before()
    producer = brokers.produce()
    send(producer, 0, names)
    error = error_from_pb(producer.wait_reply("error").error)
    assert brokers.hosted.machine.end == 0
    return error


def test_too_many_names_end_the_session(brokers: Brokers) -> None:
    error = ends_with(brokers, (f"p-0-{n}.value" for n in range(MAX_LARGE_VALUES_PER_BATCH + 1)))
    assert isinstance(error, InvalidRequest) and str(MAX_LARGE_VALUES_PER_BATCH) in str(error)


def test_uploads_are_needed_from_their_check_until_their_message_is_in_a_chunk(brokers: Brokers) -> None:
    hosted = brokers.hosted
    hosted.max_upload_age = 10 * SECOND
    reported = segment_report(hosted).unwritten_upload_age
    assert reported == 20 * SECOND, "an upload of that age may be published now"
    send_three(brokers)
    with hosted as machine:
        machine.tail[0] = replace(machine.tail[0], appended=hosted.clock.now() - 3600 * SECOND)
    assert segment_report(hosted).unwritten_upload_age >= 3620 * SECOND
    follower = brokers.brokers[1].hosted(brokers.topic, brokers.segment)
    assert not segment_report(follower).unwritten_upload_age, "it may lack messages"
    brokers.flush()
    assert segment_report(hosted).unwritten_upload_age == 20 * SECOND


def test_a_large_value_that_waits_long_for_capacity_is_checked_again(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its object may be collected meanwhile."""
    hosted = brokers.hosted
    producer = brokers.produce()
    send(producer, 0)
    assert producer.wait_acked(0) == 0
    monkeypatch.setattr(HostedSegment, "upload_check_valid_seconds", 0.05)
    has_capacity, waiting = threading.Event(), threading.Event()
    reserve = hosted.memory.reserve

    def reserve_later(nbytes: int) -> bool:
        waiting.set()
        return has_capacity.is_set() and reserve(nbytes)

    hosted.memory.reserve = reserve_later  # type: ignore[method-assign]
    send(producer, 1, NAMES[:1])
    assert waiting.wait(HANG_GUARD)
    brokers.store.delete(paths.large_value(brokers.topic.uid, NAMES[0]))
    assert rejection(producer).field == "upload"
    has_capacity.set()
    send(producer, 1, rejections=1)
    assert producer.wait_acked(1) == 1
