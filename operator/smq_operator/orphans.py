"""Segments of deleted topics that brokers still hold: they are sealed, so that memory is freed and producers end.

A topic that is merely not led now (its manifest cannot be read, the filer was away) is left alone: only when the filer
names another living topic, or none, under its name, its segments are orphans.
"""

from __future__ import annotations

import structlog

from smq_core.errors import SmqError
from smq_core.model import Replica
from smq_operator.effects import BrokerCalls
from smq_operator.loop import LeaderLoop
from smq_operator.registry import Broker
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL
from smq_storage.topics import read_current

log = structlog.get_logger()

LOOK_AFTER = 3_000_000
AGAIN_AFTER = 10_000_000
SEAL_TIMEOUT = 30.0
HOLDING = ("waiting", "open", "fenced")


class Orphans:
    """Fed with every report; looks closer at what stays unknown for a while."""

    def __init__(self, loop: LeaderLoop, brokers: BrokerCalls) -> None:
        self._loop = loop
        self._brokers = brokers
        self._look_at: dict[tuple[str, str], int] = {}

    def reported(self, broker: Broker, now: int) -> None:
        """Compares what the broker holds with the topics that live."""
        unknown: dict[str, list[pb.SegmentReport]] = {}
        for segment in broker.status.segments:
            run = self._loop.topics.get(segment.topic)
            living = run is not None and (run.topic is None or run.topic.uid == segment.uid)
            if segment.state in HOLDING and segment.uid and not living:
                unknown.setdefault(segment.uid, []).append(segment)
        for uid, segments in unknown.items():
            key = (broker.replica.incarnation, uid)
            look_at = self._look_at.setdefault(key, now + LOOK_AFTER)
            if now >= look_at:
                self._look_at[key] = now + AGAIN_AFTER
                self._loop.spawn(self._look(broker.replica, segments))
        mine = [key for key in self._look_at if key[0] == broker.replica.incarnation and key[1] not in unknown]
        for key in mine:
            del self._look_at[key]

    async def _look(self, replica: Replica, segments: list[pb.SegmentReport]) -> None:
        topic, uid = segments[0].topic, segments[0].uid
        try:
            current = await self._loop.effects.in_pool(read_current, self._loop.store, topic)
            if current is None or current[0] == uid:
                return
            for segment in segments:
                request = pb.SealSegment(
                    protocol=PROTOCOL,
                    topic=topic,
                    uid=uid,
                    segment=segment.segment,
                    incarnation=replica.incarnation,
                    reason="Deleted",
                )
                await self._brokers.call(replica, "seal", request, timeout=SEAL_TIMEOUT)
                log.info("orphan.sealed", topic=topic, uid=uid, segment=segment.segment, broker=replica.broker)
        except SmqError as error:
            log.warning("orphan.failed", topic=topic, uid=uid, broker=replica.broker, message=error.message)
