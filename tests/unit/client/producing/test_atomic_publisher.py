"""What the receipt of an atomic publish says. The test plays the leader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from smq.producing.atomic_publisher import AtomicPublisher
from smq.producing.uploads.uploaded_rows import UploadedFile
from smq_core.errors import ProducerFenced, SmqError, Unavailable
from smq_proto.v1 import leader_pb2 as lpb
from support.in_memory.topic import TopicInMemory

FENCED = ProducerFenced("another owner")
WAITING, DONE = lpb.AppReply(version=5), lpb.AppReply(version=5, complete=True)
OTHERS, OTHERS_DONE = (lpb.AppReply(version=6, complete=complete, already_published=True) for complete in (False, True))


class ScriptedLeader:
    """Answers the calls of one publish."""

    def __init__(self, *answers: lpb.AppReply | SmqError) -> None:
        self._answers: Iterator[lpb.AppReply | SmqError] = iter(answers)

    def call(self, method: str, request: Any, timeout: float) -> lpb.AppReply:
        if method == "ClaimApp":
            return lpb.AppReply(version=4)
        answer = next(self._answers)
        if isinstance(answer, SmqError):
            raise answer
        return answer


def publish(*answers: lpb.AppReply | SmqError) -> bool:
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
