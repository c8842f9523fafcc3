"""The segment that a short name means, and the text of a loss."""

from __future__ import annotations

import pytest

from smq import SegmentInfo, TopicInfo
from smq.cli.commands.segments import find_segments, format_loss
from smq_core.errors import UnknownSegment
from smq_core.model.loss import Loss


def segment(
    name: str, *, end: int | None = None, after: tuple[str, ...] = (), next_: tuple[str, ...] = ()
) -> SegmentInfo:
    _, start, stop, number = name.rsplit("-", 3)
    phase = "open" if end is None else "sealed"
    return SegmentInfo(
        name=name,
        number=int(number),
        start=int(start),
        stop=int(stop),
        phase=phase,
        durability="Replicated",
        brokers=("b-0",),
        predecessors=after,
        successors=next_,
        opened_because="Create",
        sealed_because="",
        opened_at=None,
        sealed_at=None,
        end=end,
        bytes=0,
        lost=None,
    )


def topic(name: str, *segments: SegmentInfo) -> TopicInfo:
    return TopicInfo(
        name=name,
        uid="uid",
        partitions=8,
        key="",
        schema=(),
        durability="Replicated",
        segments=segments,
        sealed_segments=0,
        messages_per_second=0.0,
        bytes_per_second=0.0,
        conditions=(),
        layout_version=1,
    )


DAG = [
    segment("f-0-8-0", end=100),
    segment("f-0-4-1", after=("f-0-8-0",)),
    segment("f-4-8-2", after=("f-0-8-0",)),
]


def test_a_segment_may_be_named_without_its_number() -> None:
    topics = [topic("default/f", *DAG[1:])]

    assert find_segments(topics, ["f-0-4"]) == ("default/f", ["f-0-4-1"])
    assert find_segments(topics, ["f-0-4-1", "f-4-8"]) == ("default/f", ["f-0-4-1", "f-4-8-2"])


def test_without_its_number_it_is_the_one_that_has_no_successors() -> None:
    sealing = segment("f-0-4-1", next_=("f-0-4-3",))

    assert find_segments([topic("default/f", sealing, segment("f-0-4-3"))], ["f-0-4"]) == ("default/f", ["f-0-4-3"])


def test_topics_whose_names_look_like_segments_are_distinguished() -> None:
    topics = [topic("default/a", segment("a-1-8-0")), topic("default/a-1", segment("a-1-1-8-0"))]

    assert find_segments(topics, ["a-1-8"]) == ("default/a", ["a-1-8-0"])
    assert find_segments(topics, ["a-1-1-8"]) == ("default/a-1", ["a-1-1-8-0"])


def test_the_default_namespace_comes_first_and_others_are_named() -> None:
    both = [topic("default/f", segment("f-0-8-0")), topic("travel/f", segment("f-0-8-3"))]

    assert find_segments(both, ["f-0-8"])[0] == "default/f"
    assert find_segments(both, ["travel/f-0-8"]) == ("travel/f", ["f-0-8-3"])
    assert find_segments(both[1:], ["f-0-8"])[0] == "travel/f"
    others = [topic("a/f", segment("f-0-8-0")), topic("b/f", segment("f-0-8-3"))]
    with pytest.raises(UnknownSegment, match="several topics"):
        find_segments(others, ["f-0-8"])


def test_a_segment_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(UnknownSegment, match=r"no open segment f-0-2\. The open ones are: f-0-4-1, f-4-8-2"):
        find_segments([topic("default/f", *DAG[1:])], ["f-0-2"])


@pytest.mark.parametrize(
    ("lost", "text"),
    [
        (Loss(10, 20), "lost 10-20"),
        (Loss(10, 20, at_least=True), "lost 10-20 or more"),
        (Loss(10, 10, at_least=True), "possibly lost from 10 on"),
    ],
)
def test_a_loss_says_how_much_is_known(lost: Loss, text: str) -> None:
    assert format_loss(lost) == text
