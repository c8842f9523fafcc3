"""The lanes of a client: a small one and a bulk one to each broker, for each topic and schema version written to."""

from __future__ import annotations

import time

import pyarrow as pa

from smq.lock_order import ClientLock
from smq.producing.lanes.lane import ProducerLane
from smq.producing.lanes.session import ProducerSession, SessionOwner
from smq.producing.runtime.timers import Timers
from smq.transport.dialer import Dialer
from smq_core.model.entities import Segment
from smq_proto.v1 import data_pb2 as pb
from smq_storage.process.locks import make_lock

CHECK_INTERVAL_SECONDS = 0.25
# The time after which a lane that is not used is closed.
IDLE_SECONDS = 10.0

# The primary's incarnation, the topic's uid, the schema version, and whether it is a bulk lane.
Key = tuple[str, str, int, bool]


class ProducerLanes:
    """Safe from many threads. Lanes are checked by ``timers`` as long as there are any."""

    def __init__(self, dialer: Dialer, timers: Timers) -> None:
        self._dialer = dialer
        self._timers = timers
        self._lock = make_lock(ClientLock.STREAMS)
        self._lanes: dict[Key, ProducerLane] = {}
        self._checked = False
        self._closed = False

    def open_session(
        self,
        segment: Segment,
        *,
        topic: str,
        uid: str,
        schema: pa.Schema,
        hello: pb.ProducerHello,
        owner: SessionOwner,
        session: int,
        is_bulk: bool,
    ) -> ProducerSession:
        """A session on a lane to the segment's primary, which is opened if there is none.

        ``session`` is the owner's number of it. The caller holds the producer's lock.
        """
        key = (segment.primary.incarnation, uid, segment.schema_version, is_bulk)
        with self._lock:
            lane = self._lanes.get(key)
            added = lane.add_session(segment, hello, owner, session) if lane is not None else None
            if added is None:
                lane = self._lanes[key] = ProducerLane(
                    segment.primary,
                    topic=topic,
                    uid=uid,
                    schema=schema,
                    dialer=self._dialer,
                    timers=self._timers,
                    on_ended=self._on_ended,
                    is_bulk=is_bulk,
                )
                added = lane.add_session(segment, hello, owner, session)
                assert added is not None, "a new lane takes sessions"
                lane.start()
            if not self._checked and not self._closed:
                self._checked = True
                self._timers.call_later(CHECK_INTERVAL_SECONDS, self._check)
        return added

    def close(self) -> None:
        """Ends all lanes after what is ready was sent. Repeatable."""
        with self._lock:
            self._closed = True
            lanes = list(self._lanes.values())
        for lane in lanes:
            lane.close()
        for lane in lanes:
            lane.join(5)

    def _on_ended(self, ended: ProducerLane) -> None:
        with self._lock:
            for key in [key for key, lane in self._lanes.items() if lane is ended]:
                del self._lanes[key]

    def _check(self) -> None:
        """Cuts lanes that are unresponsive, and closes those that nobody uses, or whose certificate was replaced."""
        now = time.monotonic()
        with self._lock:
            lanes = list(self._lanes.values())
            self._checked = bool(lanes) and not self._closed
            if self._checked:
                self._timers.call_later(CHECK_INTERVAL_SECONDS, self._check)
        for lane in lanes:
            if lane.is_unresponsive(now):
                lane.abort()
            elif lane.is_unused(now, IDLE_SECONDS) or lane.is_outdated:
                lane.close()  # sessions that are needed go on in another lane
