"""What people write on a Segment: what it asks for, what is told of it, and when the annotation goes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from smq_core.decide import Request
from smq_core.model import Phase
from smq_operator.kube.annotations import AcceptLoss, Answer, Nonsense, annotations_of, follow, meaning
from smq_operator.topic import TopicRun
from smq_storage.store import open_store
from support.fake_fleet import FakeFleet
from support.leader_in_memory import FakeWorld, LeaderInMemory, leading, until

NAME = "t-0-16-0"
P = "seaweedmq.io/"


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("split", "true", Request("split", (NAME,))),
        ("split", " 5 ", Request("split", (NAME,), (5,))),
        ("split", "4,8", Request("split", (NAME,), (4, 8))),
        ("split", "0", Request("split", (NAME,), (0,))),
        ("merge", "t-16-32-1", Request("merge", (NAME, "t-16-32-1"))),
        ("merge", "a, b", Request("merge", (NAME, "a", "b"))),
        ("move", "true", Request("move", (NAME,))),
        ("roll", "true", Request("roll", (NAME,))),
        ("accept-loss", "true", AcceptLoss(NAME)),
    ],
)
def test_what_it_asks_for(key: str, value: str, wanted: object) -> None:
    assert meaning(NAME, P + key, value) == wanted


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
        ("", "", "What can be written"),
    ],
)
def test_what_means_nothing_is_told_with_what_to_write(key: str, value: str, advice: str) -> None:
    wanted = meaning(NAME, P + key, value)
    assert isinstance(wanted, Nonsense)
    assert advice in wanted.advice and P + key in wanted.advice


def test_annotations_of_others_are_not_looked_at() -> None:
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "seaweedmq.io/split": "true", "a": "b"}
    assert annotations_of({"metadata": {"annotations": annotations}}) == {"seaweedmq.io/split": "true"}
    assert not annotations_of({"metadata": {}})


def led(work: Callable[[LeaderInMemory, TopicRun], Awaitable[None]], segments: int = 1) -> None:
    """Runs ``work`` beside a leader whose topic ``t`` is open on two of three brokers."""

    async def main() -> None:
        store = open_store("memory://")
        fleet, world = FakeFleet(store), FakeWorld()
        for number in range(3):
            fleet.add(f"b{number}")
        world.wish("default/t", min_segments=segments)
        leader = LeaderInMemory(world, fleet, store)
        async with leading(leader):
            await until(lambda: is_open(leader), what="the topic is open")
            await work(leader, leader.loop.topics["default/t"])

    asyncio.run(main())


def is_open(leader: LeaderInMemory) -> bool:
    run = leader.loop.topics.get("default/t")
    held = {key for broker in leader.fleet.brokers.values() for key in broker.held}
    return (
        run is not None
        and run.layout is not None
        and all(s.phase is Phase.OPEN and (run.layout.uid, s.name) in held for s in run.layout.segments)
    )


async def followed(leader: LeaderInMemory, run: TopicRun, name: str, key: str, value: str) -> list[Answer]:
    """The answers until the annotation is to be removed, as the projections ask for them."""
    answers: list[Answer] = []

    def removed() -> bool:
        answers.append(follow(leader.loop, run, name, P + key, value))
        return answers[-1].remove

    await until(removed, what=f"{key}={value} is done")
    return [answer for answer in answers if answer.message]


@pytest.mark.parametrize(("key", "value"), [("split", "true"), ("split", "3,9"), ("move", "true"), ("roll", "true")])
def test_it_is_told_once_and_waits_until_it_is_done(key: str, value: str) -> None:
    async def work(leader: LeaderInMemory, run: TopicRun) -> None:
        asked, done = await followed(leader, run, NAME, key, value)
        assert "asked for by hand" in asked.message and not asked.remove
        assert f"{NAME} was sealed by hand" in done.message and not done.refused
        await until(lambda: NAME in run.sealed and is_open(leader), what="the successors are open")

    led(work)


def test_a_merge_may_be_asked_of_either_and_without_numbers() -> None:
    async def work(leader: LeaderInMemory, run: TopicRun) -> None:
        assert follow(leader.loop, run, "t-0-8-0", P + "merge", "t-8-16").message
        assert follow(leader.loop, run, "t-8-16-1", P + "merge", "t-0-8-0") == Answer(remove=False)
        await until(lambda: "t-0-8-0" in run.sealed and "t-8-16-1" in run.sealed)
        for name, other in (("t-0-8-0", "t-8-16"), ("t-8-16-1", "t-0-8-0")):
            answer = follow(leader.loop, run, name, P + "merge", other)
            assert answer.remove and not answer.refused and "t-0-16-2" in answer.message

    led(work, segments=2)


@pytest.mark.parametrize(
    ("name", "key", "value", "says"),
    [
        ("t-0-8-0", "split", "8", "a boundary must lie inside"),
        ("t-0-8-0", "split", "0", "a boundary must lie inside"),
        ("t-0-8-0", "merge", "t-99-100-9", "no open segment 't-99-100-9'"),
        ("t-0-8-0", "accept-loss", "true", "not being sealed"),
        ("t-0-8-77", "roll", "true", "no open segment"),
        ("t-0-8-77", "accept-loss", "true", "no segment 't-0-8-77'"),
        ("t-0-8-0", "merge", "true", "means nothing"),
    ],
)
def test_what_cannot_be_done_is_refused_with_why_and_how(name: str, key: str, value: str, says: str) -> None:
    async def work(leader: LeaderInMemory, run: TopicRun) -> None:
        answer = follow(leader.loop, run, name, P + key, value)
        assert answer.remove and answer.refused
        assert says in answer.message and P + key in answer.message
        assert not run.leader.requests  # type: ignore[union-attr]

    led(work, segments=2)


def test_two_wishes_at_once_are_not_both_followed() -> None:
    async def work(leader: LeaderInMemory, run: TopicRun) -> None:
        assert not follow(leader.loop, run, NAME, P + "split", "true").refused
        second = follow(leader.loop, run, NAME, P + "roll", "true")
        assert second.refused and "already" in second.message

    led(work)


def test_a_blocked_seal_goes_on_when_a_person_says_so() -> None:
    async def work(leader: LeaderInMemory, run: TopicRun) -> None:
        assert run.layout is not None
        for replica in run.layout.segment(NAME).replicas:
            leader.fleet.brokers[replica.incarnation].answers = False
            broker = leader.registry.get(replica.incarnation)
            assert broker is not None
            broker.doubted = True
        for name in ("b8", "b9"):
            leader.fleet.add(name)
        await until(lambda: run.leader is not None and NAME in run.leader.blocked, 20, "the seal is blocked")
        answers = await followed(leader, run, NAME, "accept-loss", "true")
        assert [answer.refused for answer in answers] == [False, False]
        await until(lambda: NAME in run.sealed, 20, "it is sealed from the filer")

    led(work)
