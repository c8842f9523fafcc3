"""What people ask of a topic's segments, whichever way it reaches the leader: by call or by annotation."""

from __future__ import annotations

import asyncio

import structlog

from smq_core.decide import Request
from smq_core.errors import InvalidRequest, NoBrokers, Unavailable, UnknownSegment
from smq_core.model import Segment
from smq_operator.loop import LeaderLoop
from smq_operator.topic import TopicRun

log = structlog.get_logger()


WRITTEN_WITHIN = 5.0


def ask(loop: LeaderLoop, topic: str, wanted: Request) -> Request:
    """A split, merge, move or roll that is carried out at the next chance. Segments may lack their numbers.

    Returns it with the segments' full names.
    Raises UnknownTopic, NoBrokers while the topic has no segments, InvalidRequest when it cannot be done.
    """
    run = loop.topic(topic)
    if run.leader is None or run.layout is None:
        raise NoBrokers(f"topic {run.name} has no segments yet: try again when it is ready")
    names = tuple(found.name if (found := run.find(name)) is not None else name for name in wanted.segments)
    wanted = Request(wanted.action, names, wanted.boundaries)
    try:
        run.leader.ask(wanted)
    except ValueError as error:
        raise InvalidRequest(str(error)) from None
    loop.kick(run)
    return wanted


async def written(run: TopicRun, wanted: Request) -> None:
    """Returns when the layout carries out what was asked for: from then on whoever leads goes on with it.

    Raises InvalidRequest when something else came before it, Unavailable while it waits.
    """
    leader, names = run.leader, ", ".join(wanted.segments)
    assert leader is not None
    try:
        async with asyncio.timeout(WRITTEN_WITHIN):
            while run.leader is leader and leader.waits(wanted) and not run.removed:
                await run.change()
    except TimeoutError:
        raise Unavailable(
            f"the {wanted.action} of {names} waits: there is no broker that could take it on, or the filer does not "
            "answer. It is done as soon as that ends, unless this leader ends before: ask again to be sure"
        ) from None
    if run.leader is not leader or run.removed:
        raise Unavailable(f"the {wanted.action} of {names}: the topic is led anew since it was asked for, ask again")
    why = leader.given_up.get(wanted)
    if why is not None:
        raise InvalidRequest(f"the {wanted.action} of {names} cannot be done any more: {why}")


def accept_loss(loop: LeaderLoop, topic: str, segment: str) -> str:
    """Lets a blocked seal go on without what only its replicas hold, as soon as that is written into the layout.

    Returns the segment's full name. Raises UnknownTopic, UnknownSegment, InvalidRequest when it is not being sealed.
    """
    run = loop.topic(topic)
    found = _named(run, segment)
    if run.leader is None or found is None:
        raise UnknownSegment(f"topic {run.name} has no segment {segment!r} that is open or being sealed")
    if not run.leader.accept_loss(found.name):
        raise InvalidRequest(f"{found.name} is not being sealed: there is no loss to accept")
    log.warning("segment.loss.accepted", topic=run.name, segment=found.name)
    loop.kick(run)
    return found.name


def _named(run: TopicRun, name: str) -> Segment | None:
    if run.layout is None:
        return None
    exact = [s for s in run.layout.segments if s.name == name]
    short = [s for s in run.layout.segments if s.name.rpartition("-")[0] == name and s.successors]
    return next(iter(exact or short), None)
