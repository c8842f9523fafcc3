"""The segments that this incarnation hosts, has hosted, or has refused for good."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from smq_broker.runtime.lock_order import BrokerLock
from smq_broker.segments.hosted_segment import HostedSegment, segment_key
from smq_core.errors import InvalidRequest, NotHosted, Unavailable, WrongIncarnation
from smq_core.replica.segment_replica import ReplicaState
from smq_storage.process.locks import make_lock
from smq_storage.thread_runtime import make_condition, monotonic

OUTCOME_RETENTION_SECONDS = 600.0
# How long ``find`` waits for a segment to be opened: a stream may arrive before the leader's request to open.
#
# It is shorter than the time after which a primary reports an unresponsive follower.
OPEN_WAIT_SECONDS = 0.4

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class ReleasedTotals:
    """Counters of released segments. They keep the sums in the metrics from going back."""

    messages: int = 0
    bytes: int = 0
    batches: int = 0

    def add(self, hosted: HostedSegment) -> None:
        self.messages += hosted.machine.counters.messages
        self.bytes += hosted.bytes_in
        self.batches += hosted.machine.counters.batches


class SegmentRegistry:
    """Safe from many threads. ``on_drain`` is called once, when draining starts."""

    def __init__(self, incarnation: str, on_drain: Callable[[], None]) -> None:
        self.incarnation = incarnation
        self.draining = False
        self.version = 0
        """Another number when other segments are hosted. It is read without the lock."""
        self.released_totals = {role: ReleasedTotals() for role in ("primary", "follower")}
        self._on_drain = on_drain
        self._lock = make_lock(BrokerLock.REGISTRY)
        self._registered = make_condition(self._lock)
        self._hosted: dict[str, HostedSegment] = {}
        self._used_keys: set[str] = set()
        self._sealed_at: dict[str, float] = {}

    def all(self) -> list[HostedSegment]:
        with self._lock:
            return list(self._hosted.values())

    def bytes_in(self) -> int:
        """All bytes that were ever received, in both roles."""
        return sum(hosted.bytes_in for hosted in self.all()) + sum(
            totals.bytes for totals in self.released_totals.values()
        )

    def unresponsive_followers(self) -> list[str]:
        """Incarnations of followers with a request unanswered for at least 500 ms.

        A segment that was fenced stays for minutes, and nobody connects its links again. So they say nothing any more.
        """
        ended = (ReplicaState.FENCED, ReplicaState.SEALED)
        active = (hosted for hosted in self.all() if hosted.machine.state not in ended)
        return sorted({link.incarnation for hosted in active for link in hosted.links if link.unresponsive()})

    # ---- adding and refusing

    def add(self, uid: str, segment: str, create: Callable[[], HostedSegment]) -> tuple[HostedSegment, bool]:
        """The hosted segment, and True if ``create`` made it now, False if it was hosted already.

        Raises NotHosted (for good: it was hosted or refused before), Unavailable (this broker is draining), and the
        errors of ``create``.
        """
        key = segment_key(uid, segment)
        with self._lock:
            hosted = self._hosted.get(key)
            if hosted is not None and hosted.machine.state not in (ReplicaState.FENCED, ReplicaState.SEALED):
                return hosted, False
            if hosted is not None or key in self._used_keys:
                raise NotHosted(
                    f"{segment} was here before and is not opened again: choose another broker", segment=segment
                )
            if self.draining:
                raise Unavailable("this broker is being drained and opens nothing new: choose another broker")
            hosted = create()
            self._hosted[key] = hosted
            self.version += 1
            self._used_keys.add(key)
            self._registered.notify_all()
        return hosted, True

    def hosted(self, uid: str, segment: str) -> HostedSegment | None:
        with self._lock:
            return self._hosted.get(segment_key(uid, segment))

    def get_or_refuse(self, uid: str, segment: str) -> HostedSegment:
        """The hosted segment. If there is none, raises NotHosted and refuses to open the segment from now on."""
        key = segment_key(uid, segment)
        with self._lock:
            hosted = self._hosted.get(key)
            if hosted is None:
                self._used_keys.add(key)
                self._registered.notify_all()
        if hosted is None:
            raise NotHosted(
                f"this broker does not hold {segment} and will never open it", segment=segment, certain=True
            )
        return hosted

    def drain(self) -> None:
        """Opens no more segments. The leader moves the hosted ones elsewhere when the next report says so."""
        if not self.draining:
            self.draining = True
            log.info("broker.drain_started")
            self._on_drain()

    # ---- finding

    def find(self, segment: str, uid: str, incarnation: str, wait_seconds: float = OPEN_WAIT_SECONDS) -> HostedSegment:
        """The hosted segment. Waits for a segment that was never here. Without ``uid`` the name must be unambiguous.

        Raises WrongIncarnation, NotHosted, InvalidRequest.
        """
        self.check_incarnation(incarnation)
        with self._lock:
            if uid:
                key = segment_key(uid, segment)
                self._registered.wait_for(lambda: key in self._used_keys, wait_seconds)
                hosted = self._hosted.get(key)
                matching = [hosted] if hosted is not None else []
            else:
                matching = [h for h in self._hosted.values() if h.name == segment]
        unsealed = [h for h in matching if h.machine.state is not ReplicaState.SEALED] or matching
        if not unsealed:
            raise NotHosted(f"this broker does not hold {segment}: locate the topic again", segment=segment)
        if len(unsealed) > 1:
            raise InvalidRequest(f"several topics have a segment {segment} here: give the topic's uid as well")
        return unsealed[0]

    def topic_name(self, uid: str) -> str:
        """The name of the topic with this uid, for messages; empty if no segment of it is here."""
        return next((hosted.topic.name for hosted in self.all() if hosted.topic.uid == uid), "")

    def find_sealed(self, uid: str, segment: str) -> HostedSegment | None:
        """The hosted segment if it is sealed, so that its outcome is in memory."""
        hosted = self.hosted(uid, segment)
        return hosted if hosted is not None and hosted.machine.outcome is not None else None

    def check_incarnation(self, incarnation: str) -> None:
        """Raises WrongIncarnation when the caller means another process."""
        if incarnation != self.incarnation:
            raise WrongIncarnation(
                f"this broker is incarnation {self.incarnation}, not {incarnation}: locate the topic again",
                incarnation=self.incarnation,
            )

    # ---- releasing

    def remove_expired(self) -> None:
        """Releases segments ten minutes after they were sealed. They are never opened here again.

        A segment that was sealed below this replica's watermark stays in the reports while this process runs, because
        the leader learns of the loss from nobody else, and may be away for longer.
        """
        now = monotonic()
        for hosted in self.all():
            if hosted.machine.state is not ReplicaState.SEALED or hosted.acked_beyond_end:
                continue
            if now - self._sealed_at.setdefault(hosted.key, now) > OUTCOME_RETENTION_SECONDS:
                del self._sealed_at[hosted.key]
                with self._lock:
                    self._hosted.pop(hosted.key, None)
                    self.version += 1
                    self.released_totals["primary" if hosted.is_primary else "follower"].add(hosted)
