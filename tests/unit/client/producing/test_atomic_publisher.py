"""What the receipt of an atomic publish says. The test plays the leader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from smq.delivery import AtomicReceipt
from smq.producing.atomic_publisher import AtomicPublisher
from smq.producing.uploads.uploaded_rows import UploadedFile
from smq_core.errors import ProducerFenced, SmqError, Unavailable
from smq_proto.v1 import publishes_pb2
from support.in_memory.topic import TopicInMemory

FENCED = ProducerFenced("another owner")
WAITING, DONE = publishes_pb2.AppReply(version=5), publishes_pb2.AppReply(version=5, complete=True)
OTHERS, OTHERS_DONE = (
    publishes_pb2.AppReply(version=6, complete=complete, already_published=True) for complete in (False, True)
)


class ScriptedLeader:
    """Answers the calls of one publish."""

    def __init__(self, *answers: publishes_pb2.AppReply | SmqError) -> None:
        self._answers: Iterator[publishes_pb2.AppReply | SmqError] = iter(answers)

    def ClaimApp(self, request: Any, timeout: float) -> publishes_pb2.AppReply:
        return publishes_pb2.AppReply(version=4)

    def PublishAtomically(self, request: Any, timeout: float) -> publishes_pb2.AppReply:
        answer = next(self._answers)
        if isinstance(answer, SmqError):
            raise answer
        return answer


def publish(*answers: publishes_pb2.AppReply | SmqError) -> bool:
    """Whether the receipt of version 5 says that it was published before."""
    publisher = AtomicPublisher(ScriptedLeader(*answers))  # type: ignore[arg-type]

    def upload(_: object) -> list[UploadedFile]:
        return []

    return publisher.publish(TopicInMemory(), "etl", 5, upload, 60.0).already_published  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "answers",
    [(DONE,), (WAITING, DONE), (WAITING, Unavailable("no leader"), DONE), (WAITING, FENCED), (WAITING, OTHERS_DONE)],
    ids=["at once", "later", "another leader", "another owner goes on", "a later version goes on"],
)
def test_what_this_call_has_committed_is_published_by_it(answers: tuple[Any, ...]) -> None:
    assert not publish(*answers)


@pytest.mark.parametrize("answers", [(OTHERS_DONE,), (OTHERS, OTHERS_DONE)])
def test_what_another_call_has_committed_is_already_published(answers: tuple[Any, ...]) -> None:
    assert publish(*answers)


@pytest.mark.parametrize("answers", [(FENCED,), (OTHERS, FENCED)])
def test_rows_that_another_call_replaced_are_not_reported_as_published(answers: tuple[Any, ...]) -> None:
    with pytest.raises(ProducerFenced):
        publish(*answers)


class AppOfLeader:
    """The leader's state of one app."""

    def __init__(self, version: int | None = None) -> None:
        self.version = version

    def ClaimApp(self, request: Any, timeout: float) -> publishes_pb2.AppReply:
        return publishes_pb2.AppReply(version=self.version, complete=True)

    def PublishAtomically(self, request: Any, timeout: float) -> publishes_pb2.AppReply:
        if self.version is not None and request.version <= self.version:
            return publishes_pb2.AppReply(version=self.version, complete=True, already_published=True)
        self.version = request.version
        return publishes_pb2.AppReply(version=self.version, complete=True)


def publish_at(publisher: AtomicPublisher, version: int) -> AtomicReceipt:
    return publisher.publish(TopicInMemory(), "etl", version, lambda _: [], 60.0)  # type: ignore[arg-type]


def test_the_last_version_is_the_newest_one_after_each_publish() -> None:
    leader = AppOfLeader()
    publisher, topic = AtomicPublisher(leader), TopicInMemory()  # type: ignore[arg-type]
    found = []
    for _ in range(3):
        last = publisher.last_version(topic, "etl", 60.0)  # type: ignore[arg-type]
        found.append((last, publish_at(publisher, (last or 0) + 1).already_published))
    assert found == [(None, False), (1, False), (2, False)]
    leader.version = 9  # another process of the same owner
    assert publisher.last_version(topic, "etl", 60.0) == 9  # type: ignore[arg-type]


def test_rows_that_are_dropped_are_logged_unless_this_client_has_published_their_version(
    caplog: pytest.LogCaptureFixture,
) -> None:
    publisher = AtomicPublisher(AppOfLeader(version=4))  # type: ignore[arg-type]
    receipt = publish_at(publisher, 3)
    assert receipt.already_published and receipt.last_version == 4
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert all(it in record.getMessage() for it in ("version 3", "'etl'", "default/t", "last version is 4"))
    caplog.clear()
    assert publish_at(publisher, 5).last_version == 5
    assert publish_at(publisher, 5).already_published, "a repeat by the client that has published it"
    assert not caplog.records
    assert publish_at(publisher, 6).last_version == 6
    assert publish_at(publisher, 5).already_published
    (record,) = caplog.records
    assert "not the one that this client published last" in record.getMessage(), "nothing is said of who has"


def test_a_version_that_this_client_may_have_published_is_not_reported_as_anothers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    publisher = AtomicPublisher(ScriptedLeader(Unavailable("no answer"), OTHERS_DONE))  # type: ignore[arg-type]
    with pytest.raises(Unavailable):
        publish_at(publisher, 5)
    assert publish_at(publisher, 5).already_published
    assert not caplog.records
