"""Kubernetes Events: what the leader did, and what it could not do, told beside the resource that it is about.

The same words about the same thing are one Event with a count; whatever goes wrong again and again costs the API server
no more than a call now and then. ``EventBook`` decides, without IO; ``EventWriter`` writes. An Event that cannot be
written is lost: the log has it too.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from smq_operator.kube.errors import AlreadyExists, KubeError, NotFound
from smq_operator.kube.kinds import EVENTS, Kind, Resource
from smq_operator.kube.times import rfc3339

log = structlog.get_logger()

COMPONENT = "seaweedmq-operator"
BURST = 25
REFILL_EVERY = 5_000_000
"""Events about one resource: so many at once, then one in so many microseconds."""
COUNT_EVERY = 30_000_000
"""A repeated Event's count is written at most this often."""
FORGOTTEN_AFTER = 3_600_000_000
"""The API server forgets an Event after an hour by default; then it is a new one."""
REMEMBERED = 5_000
WAITING = 2_000
LONGEST = 1000
PARALLEL = 4


@dataclass(frozen=True, slots=True)
class About:
    """The resource that Events are about."""

    api: str
    kind: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, kind: Kind, resource: Resource) -> About:
        metadata = resource["metadata"]
        return cls(kind.api, kind.kind, metadata.get("namespace", ""), metadata["name"], metadata.get("uid", ""))


@dataclass(frozen=True, slots=True)
class Happened:
    """``reason`` is one word, such as Split; ``message`` tells it. ``warning``: somebody should do something."""

    about: About
    reason: str
    message: str
    warning: bool = False


@dataclass(slots=True)
class Written:
    """One Event resource, as far as this process knows it."""

    name: str
    first_at: int
    last_at: int
    written_at: int
    count: int = 1


@dataclass(slots=True)
class _Budget:
    left: float
    at: int


class EventBook:
    """Which Events to write. Times are microseconds. ``process`` tells this process from others before and after it."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._written: OrderedDict[Happened, Written] = OrderedDict()
        self._budgets: OrderedDict[tuple[str, str, str], _Budget] = OrderedDict()
        self.dropped = 0

    def take(self, event: Happened, now: int) -> Written | None:
        """The Event to create (its count is 1) or to count up, or None when there is nothing to write now."""
        known = self._written.get(event)
        if known is not None and now - known.last_at < FORGOTTEN_AFTER:
            known.count, known.last_at = known.count + 1, now
            self._written.move_to_end(event)
            if now - known.written_at < COUNT_EVERY or not self._may(event.about, now):
                return None
            known.written_at = now
            return known
        if not self._may(event.about, now):
            self.dropped += 1
            return None
        words = f"{self._process} {event} {now}".encode()
        name = f"{event.about.name[:200]}.{hashlib.blake2b(words, digest_size=8).hexdigest()}"
        made = self._written[event] = Written(name, now, now, now)
        if len(self._written) > REMEMBERED:
            self._written.popitem(last=False)
        return made

    def forget(self, event: Happened) -> None:
        """The Event is not there any more: the next one like it is a new one."""
        self._written.pop(event, None)

    def _may(self, about: About, now: int) -> bool:
        key = (about.kind, about.namespace, about.name)
        budget = self._budgets.setdefault(key, _Budget(BURST, now))
        budget.left = min(BURST, budget.left + (now - budget.at) / REFILL_EVERY)
        budget.at = now
        self._budgets.move_to_end(key)
        if len(self._budgets) > REMEMBERED:
            self._budgets.popitem(last=False)
        if budget.left < 1:
            return False
        budget.left -= 1
        return True


def body_of(event: Happened, written: Written, instance: str) -> Resource:
    """The Event as the core API has it."""
    about = event.about
    return {
        "apiVersion": EVENTS.api,
        "kind": EVENTS.kind,
        "metadata": {"name": written.name, "namespace": about.namespace or "default"},
        "involvedObject": {
            "apiVersion": about.api,
            "kind": about.kind,
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
        },
        "type": "Warning" if event.warning else "Normal",
        "reason": event.reason[:128],
        "message": event.message if len(event.message) <= LONGEST else event.message[: LONGEST - 1] + "…",
        "source": {"component": COMPONENT, "host": instance},
        "reportingComponent": COMPONENT,
        "reportingInstance": instance[:128],
        "firstTimestamp": rfc3339(written.first_at),
        "lastTimestamp": rfc3339(written.last_at),
        "count": written.count,
    }


class EventCalls(Protocol):
    """The part of ``KubeApi`` that Events need."""

    async def create_event(self, body: Resource) -> Resource: ...

    async def patch(self, kind: Kind, name: str, namespace: str, change: Resource, part: str = "") -> Resource: ...


class EventWriter:
    """Writes what ``tell`` is given, beside everything else. ``instance`` is this process's name, such as its Pod's."""

    def __init__(self, api: EventCalls, instance: str, process: str, clock: Callable[[], int]) -> None:
        self._api = api
        self._instance = instance
        self._book = EventBook(process)
        self._now = clock
        self._waiting: deque[tuple[Happened, Written]] = deque(maxlen=WAITING)
        self._news = asyncio.Event()

    def tell(self, event: Happened) -> None:
        """Call it on the event loop; it never waits."""
        written = self._book.take(event, self._now())
        if written is not None:
            self._waiting.append((event, written))
            self._news.set()

    async def keep(self) -> None:
        """Writes until it is cancelled."""
        await asyncio.gather(*(self._keep() for _ in range(PARALLEL)))

    async def _keep(self) -> None:
        while True:
            while not self._waiting:
                self._news.clear()
                await self._news.wait()
            event, written = self._waiting.popleft()
            try:
                await self._write(event, written)
            except KubeError as error:
                log.warning("event.lost", reason=event.reason, about=event.about.name, message=error.message)
            except Exception:
                log.exception("event.failed", reason=event.reason, about=event.about.name)

    async def _write(self, event: Happened, written: Written) -> None:
        body = body_of(event, written, self._instance)
        if written.count == 1:
            try:
                await self._api.create_event(body)
            except AlreadyExists:
                log.debug("event.there.already", name=written.name)
            return
        change = {"count": written.count, "lastTimestamp": body["lastTimestamp"]}
        try:
            await self._api.patch(EVENTS, written.name, body["metadata"]["namespace"], change)
        except NotFound:
            self._book.forget(event)
