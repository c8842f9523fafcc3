"""What people ask for by annotating a Segment: what each annotation means, and what to write where it means nothing.

An annotation stays until it is carried out or refused, so that a leader that ends meanwhile is followed by one that
goes on with it; then it is removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from smq_core.decide import Request
from smq_core.errors import InvalidRequest, SmqError
from smq_core.model import Reason
from smq_operator.asking import accept_loss, ask
from smq_operator.kube.kinds import Resource
from smq_operator.loop import LeaderLoop
from smq_operator.topic import TopicRun

PREFIX = "seaweedmq.io/"
SPLIT, MERGE, MOVE, ROLL, ACCEPT_LOSS = (PREFIX + word for word in ("split", "merge", "move", "roll", "accept-loss"))
HELP = {
    SPLIT: f"{SPLIT}=true cuts the segment in the middle, {SPLIT}=512 at that partition, {SPLIT}=256,512 in three",
    MERGE: f"{MERGE}=NAME makes one of it and its neighbour, the Segment of that name",
    MOVE: f"{MOVE}=true goes on with its range on other brokers",
    ROLL: f"{ROLL}=true seals it and goes on with its range in a new segment",
    ACCEPT_LOSS: f"{ACCEPT_LOSS}=true lets a blocked seal go on without what only its replicas hold",
}


@dataclass(frozen=True, slots=True)
class AcceptLoss:
    """Let the blocked seal of this segment go on."""

    segment: str


@dataclass(frozen=True, slots=True)
class Nonsense:
    """``advice`` says what to write instead."""

    advice: str


Wanted: TypeAlias = Request | AcceptLoss | Nonsense


@dataclass(frozen=True, slots=True)
class Answer:
    """What becomes of an annotation: it is removed, or waits. ``message`` is told to people, when there is one."""

    remove: bool
    message: str = ""
    refused: bool = False


WAITS = Answer(remove=False)


def annotations_of(resource: Resource) -> Mapping[str, str]:
    """Those that ask for something. All of the project's prefix do, since none of them is a Segment's own."""
    found = resource["metadata"].get("annotations") or {}
    return {key: value for key, value in found.items() if key.startswith(PREFIX)}


def meaning(segment: str, key: str, value: str) -> Wanted:
    """What an annotation of this segment asks for."""
    value = value.strip()
    if key == SPLIT and value == "true":
        return Request("split", (segment,))
    if key == SPLIT:
        numbers = [part.strip() for part in value.split(",")]
        if all(number.isascii() and number.isdigit() and len(number) < 10 for number in numbers):
            return Request("split", (segment,), tuple(int(number) for number in numbers))
    elif key == MERGE and value and value not in ("true", segment):
        return Request("merge", (segment, *(part.strip() for part in value.split(","))))
    elif key == MOVE and value == "true":
        return Request("move", (segment,))
    elif key == ROLL and value == "true":
        return Request("roll", (segment,))
    elif key == ACCEPT_LOSS and value == "true":
        return AcceptLoss(segment)
    if key in HELP:
        return Nonsense(f"{key}={value} means nothing: {HELP[key]}")
    return Nonsense(f"{key} means nothing to a Segment. What can be written: {'; '.join(HELP.values())}")


def follow(loop: LeaderLoop, run: TopicRun, segment: str, key: str, value: str) -> Answer:
    """Asks the leader for what an annotation says. To be called again until the answer is to remove it."""
    wanted = meaning(segment, key, value)
    if isinstance(wanted, Nonsense):
        return Answer(remove=True, message=wanted.advice, refused=True)
    if run.leader is None or run.layout is None:
        return WAITS
    try:
        if isinstance(wanted, AcceptLoss):
            return _accept(loop, run, segment)
        if run.leader.is_asked(wanted):
            return WAITS
        found = run.layout.segment(segment) if segment in run.layout else run.sealed.get(segment)
        if found is not None and found.sealed_because is Reason.MANUAL:
            gone_on = ", ".join(found.successors)
            return Answer(remove=True, message=f"{segment} was sealed by hand; its partitions go on in {gone_on}")
        ask(loop, run.name, wanted)
    except SmqError as error:
        return Answer(remove=True, message=f"{key}={value}: {error.message}. {HELP[key]}", refused=True)
    return Answer(remove=False, message=f"{wanted.action} of {', '.join(wanted.segments)} is asked for by hand")


def _accept(loop: LeaderLoop, run: TopicRun, segment: str) -> Answer:
    leader, layout = run.leader, run.layout
    assert leader is not None and layout is not None
    if segment in run.sealed or leader.outcome(segment) is not None:
        return Answer(remove=True, message=f"{segment} is sealed")
    if segment in layout and layout.segment(segment).loss_accepted:
        return Answer(remove=True, message=f"it is written down that {segment} is sealed without its replicas")
    if leader.loss_is_accepted(segment):
        return WAITS
    try:
        accept_loss(loop, run.name, segment)
    except InvalidRequest:
        if segment in layout and layout.segment(segment).successors:
            return WAITS  # a new leader begins with its seal in a moment
        raise
    return Answer(remove=False, message=f"the seal of {segment} goes on without what only its replicas hold")
