"""Kubernetes Events: what the leader did, or could not do, recorded for the resource concerned.

Repeated messages about one resource become one Event with a count, so that an error that repeats costs the API
server few calls. ``EventCorrelator`` decides, without IO; ``EventRecorder`` writes. An Event that cannot be written is
dropped, because the log has it too.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from smq_operator.kube.client.errors import AlreadyExists, KubeError, NotFound
from smq_operator.kube.client.kinds import EVENTS, Kind, Resource, rfc3339

log = structlog.get_logger(__name__)

EVENT_SOURCE = "seaweedmq-operator"
BURST = 25
# Per resource: this many Events at once, then one per interval.
REFILL_INTERVAL_US = 5_000_000
# A repeated Event's count is written at most this often.
COUNT_INTERVAL_US = 30_000_000
# The API server deletes an Event after an hour by default; then a repeated one is new.
EVENT_TTL_US = 3_600_000_000
MAX_TRACKED = 5_000
QUEUE_SIZE = 2_000
MAX_MESSAGE_LENGTH = 1000
MAX_CONCURRENT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectReference:
    """The resource that Events are about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, kind: Kind, resource: Resource) -> ObjectReference:
        metadata = resource["metadata"]
        return cls(
            api_version=kind.api_version,
            kind=kind.kind,
            namespace=metadata.get("namespace", ""),
            name=metadata["name"],
            uid=metadata.get("uid", ""),
        )


@dataclass(frozen=True, slots=True)
class KubeEvent:
    """``reason`` is one word, such as Split; ``message`` explains it. ``warning``: a user should act on it."""

    involved_object: ObjectReference
    reason: str
    message: str
    warning: bool = False


@dataclass(slots=True, kw_only=True)
class RecordedEvent:
    """One Event resource that this process has written."""

    name: str
    first_at: int
    last_at: int
    written_at: int
    count: int = 1


@dataclass(slots=True)
class _TokenBucket:
    left: float
    at: int


class EventCorrelator:
    """Decides which Events to write. Times are microseconds. ``process`` is unique to this process."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._written: OrderedDict[KubeEvent, RecordedEvent] = OrderedDict()
        self._budgets: OrderedDict[tuple[str, str, str], _TokenBucket] = OrderedDict()
        self.dropped = 0

    def correlate(self, event: KubeEvent, now: int) -> RecordedEvent | None:
        """The Event to create (its count is 1) or to update, or None if there is nothing to write now."""
        known = self._written.get(event)
        if known is not None and now - known.last_at < EVENT_TTL_US:
            known.count, known.last_at = known.count + 1, now
            self._written.move_to_end(event)
            if now - known.written_at < COUNT_INTERVAL_US or not self._has_budget(event.involved_object, now):
                return None
            known.written_at = now
            return known
        if not self._has_budget(event.involved_object, now):
            self.dropped += 1
            return None
        seed = f"{self._process} {event} {now}".encode()
        name = f"{event.involved_object.name[:200]}.{hashlib.blake2b(seed, digest_size=8).hexdigest()}"
        made = self._written[event] = RecordedEvent(name=name, first_at=now, last_at=now, written_at=now)
        if len(self._written) > MAX_TRACKED:
            self._written.popitem(last=False)
        return made

    def forget(self, event: KubeEvent) -> None:
        """The Event was deleted, so the next one like it is new."""
        self._written.pop(event, None)

    def _has_budget(self, involved_object: ObjectReference, now: int) -> bool:
        key = (involved_object.kind, involved_object.namespace, involved_object.name)
        budget = self._budgets.setdefault(key, _TokenBucket(BURST, now))
        budget.left = min(BURST, budget.left + (now - budget.at) / REFILL_INTERVAL_US)
        budget.at = now
        self._budgets.move_to_end(key)
        if len(self._budgets) > MAX_TRACKED:
            self._budgets.popitem(last=False)
        if budget.left < 1:
            return False
        budget.left -= 1
        return True


def event_body(event: KubeEvent, written: RecordedEvent, instance: str) -> Resource:
    """The Event as a resource of the core API."""
    involved_object = event.involved_object
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": written.name, "namespace": involved_object.namespace or "default"},
        "involvedObject": {
            "apiVersion": involved_object.api_version,
            "kind": involved_object.kind,
            "namespace": involved_object.namespace,
            "name": involved_object.name,
            "uid": involved_object.uid,
        },
        "type": "Warning" if event.warning else "Normal",
        "reason": event.reason[:128],
        "message": event.message
        if len(event.message) <= MAX_MESSAGE_LENGTH
        else event.message[: MAX_MESSAGE_LENGTH - 1] + "…",
        "source": {"component": EVENT_SOURCE, "host": instance},
        "reportingComponent": EVENT_SOURCE,
        "reportingInstance": instance[:128],
        "firstTimestamp": rfc3339(written.first_at),
        "lastTimestamp": rfc3339(written.last_at),
        "count": written.count,
    }


class EventApi(Protocol):
    """The part of ``KubeApi`` that Events need."""

    async def create_event(self, body: Resource) -> Resource: ...

    async def patch(
        self, kind: Kind, name: str, namespace: str, change: Resource, subresource: str = ""
    ) -> Resource: ...


class EventRecorder:
    """Writes in the background what ``record`` takes. ``instance`` is the name of this process, such as its Pod's."""

    def __init__(self, api: EventApi, instance: str, process: str, clock: Callable[[], int]) -> None:
        self._api = api
        self._instance = instance
        self._correlator = EventCorrelator(process)
        self._now = clock
        self._queue: deque[tuple[KubeEvent, RecordedEvent]] = deque(maxlen=QUEUE_SIZE)
        self._wakeup = asyncio.Event()

    def record(self, event: KubeEvent) -> None:
        """Takes an Event without waiting. Call it on the event loop."""
        written = self._correlator.correlate(event, self._now())
        if written is not None:
            self._queue.append((event, written))
            self._wakeup.set()

    async def run(self) -> None:
        """Writes until it is cancelled."""
        await asyncio.gather(*(self._run_worker() for _ in range(MAX_CONCURRENT)))

    async def _run_worker(self) -> None:
        while True:
            while not self._queue:
                self._wakeup.clear()
                await self._wakeup.wait()
            event, written = self._queue.popleft()
            try:
                await self._write(event, written)
            except KubeError as error:
                log.warning(
                    "event.dropped",
                    reason=event.reason,
                    involved_object=event.involved_object.name,
                    message=error.message,
                )
            except Exception:
                log.exception("event.write_failed", reason=event.reason, involved_object=event.involved_object.name)

    async def _write(self, event: KubeEvent, written: RecordedEvent) -> None:
        body = event_body(event, written, self._instance)
        if written.count == 1:
            try:
                await self._api.create_event(body)
            except AlreadyExists:
                log.debug("event.already_existed", name=written.name)
            return
        change = {"count": written.count, "lastTimestamp": body["lastTimestamp"]}
        try:
            await self._api.patch(EVENTS, written.name, body["metadata"]["namespace"], change)
        except NotFound:
            self._correlator.forget(event)
