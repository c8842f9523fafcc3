"""Manual requests about segments, whether they come through the admin API or as annotations."""

from __future__ import annotations

import asyncio

import structlog

from smq_core.errors import InvalidRequest, NoBrokers, Unavailable, UnknownSegment
from smq_core.model.entities import Phase, Segment
from smq_core.model.segment_action import SegmentAction
from smq_core.model.segment_changes import SegmentChange
from smq_core.reconcile.answers import Answer, ChangeRequested, LossAccepted
from smq_core.reconcile.topic_reconciler import TopicReconciler
from smq_operator.reconcile.topics.directory import TopicDirectory
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.reconcile.work_queue import WorkQueue
from smq_operator.runtime.clock import Clock

log = structlog.get_logger(__name__)

LAYOUT_WRITE_TIMEOUT_SECONDS = 5.0


class ManualRequests:
    """Hands requests to the reconcilers of topics."""

    def __init__(self, topics: TopicDirectory, queue: WorkQueue, clock: Clock) -> None:
        self._topics = topics
        self._queue = queue
        self._now = clock

    def submit(self, topic: str, request: SegmentChange) -> SegmentChange:
        """Submits a split, merge, move or roll, which is carried out as soon as possible.

        The names of segments may lack their numbers; returns the request with the full names.
        Raises UnknownTopic, NoBrokers while the topic has no segments, InvalidRequest when it cannot be done.
        """
        managed = self._topics.topic(topic)
        if managed.reconciler is None or managed.layout is None:
            raise NoBrokers(f"topic {managed.name} has no segments yet: try again when it is ready")
        names = tuple(found.name if (found := managed.find(name)) is not None else name for name in request.segments)
        request = SegmentChange(request.action, names, request.boundaries)
        self._hand_over(managed, managed.reconciler, ChangeRequested(request))
        return request

    def accept_loss(self, topic: str, segment: str) -> str:
        """Lets a blocked seal go on without what only its replicas hold, once the layout says that this is accepted.

        Returns the segment's full name. Raises UnknownTopic, UnknownSegment, InvalidRequest if it is not being sealed.
        """
        managed = self._topics.topic(topic)
        found = _find_with_successors(managed, segment)
        if managed.reconciler is None or found is None:
            raise UnknownSegment(f"topic {managed.name} has no segment {segment!r} that is open or being sealed")
        self._hand_over(managed, managed.reconciler, LossAccepted(found.name))
        log.warning("segment.loss_accepted", topic=managed.name, segment=found.name)
        return found.name

    def separate(self, primary: str, follower: str) -> None:
        """Moves the segments of this primary that have this follower, because the two cannot reach each other."""
        for managed in self._topics.values():
            for segment in managed.layout.segments if managed.layout is not None else ():
                common = segment.primary.incarnation == primary and any(
                    replica.incarnation == follower for replica in segment.replicas[1:]
                )
                if common and segment.phase is Phase.OPEN and not segment.successors and managed.reconciler is not None:
                    log.warning("segment.move_requested", topic=managed.name, segment=segment.name)
                    move = SegmentChange(SegmentAction.MOVE, (segment.name,))
                    try:
                        self._hand_over(managed, managed.reconciler, ChangeRequested(move))
                    except InvalidRequest as error:
                        log.info("segment.move_deferred", segment=segment.name, message=error.message)
        self._queue.enqueue()

    def _hand_over(self, managed: ManagedTopic, reconciler: TopicReconciler, request: Answer) -> None:
        try:
            reconciler.handle(request, self._now())
        except ValueError as error:
            raise InvalidRequest(str(error)) from None
        self._queue.enqueue(managed)


async def wait_until_written(managed: ManagedTopic, request: SegmentChange) -> None:
    """Returns when the layout contains the request, so that any later leader carries it out too.

    Raises InvalidRequest if it can no longer be done, and Unavailable, with the cause, if it is not written in time.
    """
    reconciler, names = managed.reconciler, ", ".join(request.segments)
    assert reconciler is not None
    try:
        async with asyncio.timeout(LAYOUT_WRITE_TIMEOUT_SECONDS):
            while managed.reconciler is reconciler and reconciler.requests.is_pending(request) and not managed.deleted:
                await managed.wait_for_change()
    except TimeoutError:
        problem = managed.filer_problem
        cause = f"the filer does not answer ({problem})" if problem else "no broker is available for it"
        raise Unavailable(
            f"the {request.action} of {names} is pending: {cause}. It continues when that is resolved. Repeat the "
            "command if the leader changes"
        ) from None
    if managed.reconciler is not reconciler or managed.deleted:
        raise Unavailable(
            f"the leader restarted this topic and dropped the {request.action} of {names}: repeat the command"
        )
    why = reconciler.requests.rejected.get(request)
    if why is not None:
        raise InvalidRequest(f"the {request.action} of {names} cannot be done any more: {why}")


def _find_with_successors(managed: ManagedTopic, name: str) -> Segment | None:
    if managed.layout is None:
        return None
    exact = [s for s in managed.layout.segments if s.name == name]
    short = [s for s in managed.layout.segments if s.name.rpartition("-")[0] == name and s.successors]
    return next(iter(exact or short), None)
