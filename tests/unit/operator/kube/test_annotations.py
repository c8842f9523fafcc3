"""Annotations on a Segment: what they request, how they are answered, and when they are removed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from smq_core.model.entities import Phase
from smq_core.model.segment_action import SegmentAction
from smq_core.model.segment_changes import SegmentChange
from smq_operator.kube.segment_annotations import (
    AcceptLoss,
    AnnotationResult,
    InvalidAnnotation,
    annotations_of,
    handle_annotation,
    parse_annotation,
)
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_storage.object_store.store import open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, running_leader
from support.virtual_time import virtual_time
from support.waiting import wait_until

NAME = "t-0-16-0"
P = "seaweedmq.io/"


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("split", "true", SegmentChange(SegmentAction.SPLIT, (NAME,))),
        ("split", " 5 ", SegmentChange(SegmentAction.SPLIT, (NAME,), (5,))),
        ("split", "4,8", SegmentChange(SegmentAction.SPLIT, (NAME,), (4, 8))),
        ("split", "0", SegmentChange(SegmentAction.SPLIT, (NAME,), (0,))),
        ("merge", "t-16-32-1", SegmentChange(SegmentAction.MERGE, (NAME, "t-16-32-1"))),
        ("merge", "a, b", SegmentChange(SegmentAction.MERGE, (NAME, "a", "b"))),
        ("move", "true", SegmentChange(SegmentAction.MOVE, (NAME,))),
        ("roll", "true", SegmentChange(SegmentAction.ROLL, (NAME,))),
        ("accept-loss", "true", AcceptLoss(NAME)),
    ],
)
def test_what_it_requests(key: str, value: str, wanted: object) -> None:
    assert parse_annotation(NAME, P + key, value) == wanted


@pytest.mark.parametrize(
    ("key", "value", "advice"),
    [
        ("split", "", "seaweedmq.io/split=512"),
        ("split", "yes", "seaweedmq.io/split=true"),
        ("split", "True", "seaweedmq.io/split=true"),
        ("split", "-1", "seaweedmq.io/split=512"),
        ("split", "1.5", "seaweedmq.io/split=512"),
        ("split", "٣", "seaweedmq.io/split=512"),
        ("split", "9" * 30, "seaweedmq.io/split=512"),
        ("split", "1,,2", "seaweedmq.io/split=256,512"),
        ("merge", "", "seaweedmq.io/merge=NAME"),
        ("merge", "true", "seaweedmq.io/merge=NAME"),
        ("merge", NAME, "seaweedmq.io/merge=NAME"),
        ("move", "b1", "seaweedmq.io/move=true"),
        ("roll", "false", "seaweedmq.io/roll=true"),
        ("accept-loss", "1", "seaweedmq.io/accept-loss=true"),
        ("spilt", "true", "seaweedmq.io/split=true"),
        ("", "", "Use one of"),
    ],
)
def test_an_invalid_annotation_is_reported_with_what_to_write(key: str, value: str, advice: str) -> None:
    wanted = parse_annotation(NAME, P + key, value)
    assert isinstance(wanted, InvalidAnnotation)
    assert advice in wanted.advice and P + key in wanted.advice


def test_annotations_of_others_are_ignored() -> None:
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "seaweedmq.io/split": "true", "a": "b"}
    assert annotations_of({"metadata": {"annotations": annotations}}) == {"seaweedmq.io/split": "true"}
    assert not annotations_of({"metadata": {}})


@asynccontextmanager
async def leader_of_open_topic(segments: int = 1) -> AsyncIterator[tuple[LeaderInMemory, ManagedTopic]]:
    """A running leader and its topic ``t``, which is open on two of three brokers."""
    store = open_store("memory://")
    fleet, platform = FakeFleet(store), FakePlatform()
    for number in range(3):
        fleet.add(f"b{number}")
    platform.add_topic("default/t", min_segments=segments)
    leader = LeaderInMemory(platform, fleet, store)
    async with running_leader(leader):
        await wait_until(lambda: is_open(leader), what="the topic is open")
        yield leader, leader.topics["default/t"]


def is_open(leader: LeaderInMemory) -> bool:
    managed = leader.topics.get("default/t")
    held = {key for broker in leader.fleet.brokers.values() for key in broker.held}
    return (
        managed is not None
        and managed.layout is not None
        and all(s.phase is Phase.OPEN and (managed.layout.uid, s.name) in held for s in managed.layout.segments)
    )


async def followed(
    leader: LeaderInMemory, managed: ManagedTopic, name: str, key: str, value: str
) -> list[AnnotationResult]:
    """The answers until the annotation is to be removed, as the projections request them."""
    answers: list[AnnotationResult] = []

    def removed() -> bool:
        answers.append(handle_annotation(leader.parts.requests, managed, name, P + key, value))
        return answers[-1].remove

    await wait_until(removed, what=f"{key}={value} is done")
    return [answer for answer in answers if answer.message]


@pytest.mark.parametrize(("key", "value"), [("split", "true"), ("split", "3,9"), ("move", "true"), ("roll", "true")])
@virtual_time
async def test_an_annotation_is_reported_once_and_stays_until_it_is_done(key: str, value: str) -> None:
    async with leader_of_open_topic() as (leader, managed):
        requested, done = await followed(leader, managed, NAME, key, value)
        assert "is requested" in requested.message and not requested.remove
        assert f"{NAME} was sealed as requested" in done.message and not done.rejected
        await wait_until(lambda: NAME in managed.index.sealed and is_open(leader), what="the successors are open")


@virtual_time
async def test_a_merge_may_be_requested_of_either_and_without_numbers() -> None:
    async with leader_of_open_topic(segments=2) as (leader, managed):
        assert handle_annotation(leader.parts.requests, managed, "t-0-8-0", P + "merge", "t-8-16").message
        assert handle_annotation(
            leader.parts.requests, managed, "t-8-16-1", P + "merge", "t-0-8-0"
        ) == AnnotationResult(remove=False)
        await wait_until(lambda: "t-0-8-0" in managed.index.sealed and "t-8-16-1" in managed.index.sealed)
        for name, other in (("t-0-8-0", "t-8-16"), ("t-8-16-1", "t-0-8-0")):
            answer = handle_annotation(leader.parts.requests, managed, name, P + "merge", other)
            assert answer.remove and not answer.rejected and "t-0-16-2" in answer.message


@pytest.mark.parametrize(
    ("name", "key", "value", "says"),
    [
        ("t-0-8-0", "split", "8", "a boundary must lie inside"),
        ("t-0-8-0", "split", "0", "a boundary must lie inside"),
        ("t-0-8-0", "merge", "t-99-100-9", "no open segment 't-99-100-9'"),
        ("t-0-8-0", "accept-loss", "true", "not being sealed"),
        ("t-0-8-77", "roll", "true", "no open segment"),
        ("t-0-8-77", "accept-loss", "true", "no segment 't-0-8-77'"),
        ("t-0-8-0", "merge", "true", "is invalid"),
    ],
)
@virtual_time
async def test_what_cannot_be_done_is_refused_with_why_and_how(name: str, key: str, value: str, says: str) -> None:
    async with leader_of_open_topic(segments=2) as (leader, managed):
        answer = handle_annotation(leader.parts.requests, managed, name, P + key, value)
        assert answer.remove and answer.rejected
        assert says in answer.message and P + key in answer.message
        assert not managed.reconciler.requests.waiting  # type: ignore[union-attr]


@virtual_time
async def test_two_annotations_at_once_are_not_both_followed() -> None:
    async with leader_of_open_topic() as (leader, managed):
        assert not handle_annotation(leader.parts.requests, managed, NAME, P + "split", "true").rejected
        second = handle_annotation(leader.parts.requests, managed, NAME, P + "roll", "true")
        assert second.rejected and "already" in second.message


@virtual_time
async def test_a_blocked_seal_continues_when_the_loss_is_accepted() -> None:
    async with leader_of_open_topic() as (leader, managed):
        assert managed.layout is not None
        for replica in managed.layout.segment(NAME).replicas:
            leader.fleet.brokers[replica.incarnation].answers = False
            broker = leader.registry.get(replica.incarnation)
            assert broker is not None
            broker.suspected = True
        for name in ("b8", "b9"):
            leader.fleet.add(name)
        await wait_until(
            lambda: managed.reconciler is not None and NAME in managed.reconciler.blocked, "the seal is blocked"
        )
        answers = await followed(leader, managed, NAME, "accept-loss", "true")
        assert [answer.rejected for answer in answers] == [False, False]
        await wait_until(lambda: NAME in managed.index.sealed, "it is sealed from the filer")
