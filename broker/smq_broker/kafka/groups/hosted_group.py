"""One group in the memory of its coordinator: the machine, the requests that wait, and the writes of its document.

A write stores the generation and all commits that came before it. Commits that come while it is in flight are joined
into the next one. If another broker has written the document since, this one has lost the group and drops it.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count

import structlog

from smq_broker.kafka.groups.group_files import GroupFiles
from smq_core.errors import Conflict, SmqError
from smq_core.kafka_groups.consumer.group import ConsumerGroup
from smq_core.kafka_groups.consumer.heartbeats import HeartbeatAnswer
from smq_core.kafka_groups.group import KafkaGroup
from smq_core.kafka_groups.group_errors import GroupError
from smq_core.kafka_groups.requests import Answer, GroupSettings, Ticket
from smq_core.model.entities import SECOND, Micros
from smq_storage.catalog.kafka_groups import CLASSIC, CONSUMER, StoredKafkaGroup

log = structlog.get_logger()

RETRY_SECONDS = 1.0
# Deadlines that come together are handled together.
MIN_TIMER_SECONDS = 0.02
MAX_SHOWN_MEMBERS = 5

# What is to be changed in the document.
Change = Callable[[StoredKafkaGroup], StoredKafkaGroup]


@dataclass(frozen=True, slots=True)
class _Pending:
    change: Change
    written: asyncio.Future[GroupError]


class HostedGroup:
    """``stored`` is the document as it was read, with its etag; None if there is none.

    ``dropped`` is called when the group is lost. All methods run in the event loop.
    """

    def __init__(
        self,
        *,
        stored: StoredKafkaGroup,
        etag: str | None,
        owner: str,
        files: GroupFiles,
        settings: GroupSettings,
        dropped: Callable[[HostedGroup], None],
    ) -> None:
        self.name = stored.name
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self.machine: KafkaGroup | ConsumerGroup = KafkaGroup(settings, stored.generation)
        if stored.group_type == CONSUMER:
            self.machine = ConsumerGroup(settings, stored.generation, members=stored.members, now=self.now())
        self.session = secrets.token_hex(8)
        self.is_owned = False
        """Whether this state has been written, so that another coordinator would be noticed."""
        self._stored, self._etag = stored, etag
        self._owner = owner
        self._files = files
        self._dropped = dropped
        self.used_at = self._loop.time()
        self.written_at = self.confirmed_at = self.used_at
        """When the document was this coordinator's for sure."""
        self.is_dropped = False
        self._tickets = count()
        self._writes = count()
        self._waiting: dict[Ticket, asyncio.Future[Answer | HeartbeatAnswer]] = {}
        self._pending: list[_Pending] = []
        self._in_flight: list[_Pending] = []
        self._writer: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def stored(self) -> StoredKafkaGroup:
        """The document of which the filer has acked the write or the read."""
        return self._stored

    @property
    def is_busy(self) -> bool:
        return self._writer is not None or bool(self._waiting) or not self.machine.is_idle

    def now(self) -> Micros:
        return int(self._loop.time() * SECOND)

    # ---- events

    def classic(self) -> KafkaGroup | None:
        """The machine for members of the classic protocol. None while the group has members of the other one."""
        if isinstance(self.machine, ConsumerGroup) and self.machine.is_idle:
            self.machine = KafkaGroup(self._settings, self.machine.epoch)
        return self.machine if isinstance(self.machine, KafkaGroup) else None

    def consumer(self) -> ConsumerGroup | None:
        """The machine for members of the consumer protocol. None while the group has members of the other one."""
        if isinstance(self.machine, KafkaGroup) and self.machine.is_idle:
            self.machine = ConsumerGroup(self._settings, self.machine.generation)
        return self.machine if isinstance(self.machine, ConsumerGroup) else None

    def why_other_protocol(self, error: GroupError) -> GroupError:
        """Why a member of the other protocol is refused. It repeats its request if the last member is just leaving."""
        return error if len(self.machine.members) else GroupError.COORDINATOR_LOAD_IN_PROGRESS

    def begin(self) -> None:
        """Members that the document has count from now on, also if none of them sends anything."""
        self._after_event()

    async def wait_for(self, event: Callable[[Ticket, Micros], None]) -> Answer | HeartbeatAnswer:
        """Calls the event with a ticket, and waits for its answer."""
        ticket = next(self._tickets)
        waiter = self._waiting[ticket] = self._loop.create_future()
        try:
            event(ticket, self.now())
            self._after_event()
            return await waiter
        finally:
            del self._waiting[ticket]

    def act(self, event: Callable[[Micros], GroupError]) -> GroupError:
        if self.is_dropped:
            return GroupError.NOT_COORDINATOR
        error = event(self.now())
        self._after_event()
        return error

    async def change(self, change: Change) -> GroupError:
        """Returns when the change is stored, or why it is not."""
        pending = _Pending(change, self._loop.create_future())
        self._pending.append(pending)
        self._after_event()
        return await asyncio.shield(pending.written)

    async def written(self) -> None:
        """Waits until the changes that came so far are stored or have failed."""
        waiting = [it.written for it in (*self._in_flight, *self._pending)]
        if waiting:
            await asyncio.wait(waiting)

    def drop(self, error: GroupError) -> None:
        """Forgets the group. Whoever waits gets the error."""
        if self.is_dropped:
            return
        self.is_dropped = True
        self._refuse_all(error)
        if self._timer is not None:
            self._timer.cancel()
        self._dropped(self)

    def _after_event(self) -> None:
        self.used_at = self._loop.time()
        self._deliver()
        if self.is_dropped:
            self._refuse_all(GroupError.NOT_COORDINATOR)  # the request had the group before
            return
        if self._writer is None and self._has_to_write:
            self._writer = self._loop.create_task(self._write_all())
        if self._timer is not None:
            self._timer.cancel()
        deadline = self.machine.next_deadline()
        self._timer = None
        if deadline is not None:
            seconds = max((deadline - self.now()) / SECOND, MIN_TIMER_SECONDS)
            self._timer = self._loop.call_later(seconds, self._tick)

    def _refuse_all(self, error: GroupError) -> None:
        self.machine.end(error)
        self._deliver()
        for it in (*self._in_flight, *self._pending):
            _resolve(it.written, error)
        self._in_flight, self._pending = [], []

    def _tick(self) -> None:
        removed = self.machine.tick(self.now())
        if removed:  # one line, also if a thousand are gone
            log.info(
                "members of a Kafka group were removed: they sent nothing in time",
                group=self.name,
                members=removed[:MAX_SHOWN_MEMBERS],
                count=len(removed),
            )
        self._after_event()

    def _deliver(self) -> None:
        for ticket, answer in self.machine.take_answers():
            waiter = self._waiting.get(ticket)
            if waiter is not None and not waiter.done():
                waiter.set_result(answer)

    # ---- the document

    @property
    def _has_to_write(self) -> bool:
        return not self.is_dropped and (self.machine.has_to_store or bool(self._pending))

    async def _write_all(self) -> None:
        try:
            while self._has_to_write:
                await self._write()
        except Exception:
            self.drop(GroupError.COORDINATOR_NOT_AVAILABLE)  # or its clients would wait for ever
            raise
        finally:
            self._writer = None

    async def _write(self) -> None:
        machine, version = self.machine, self.machine.version_to_store
        generation = machine.generation_to_store
        self._in_flight, self._pending = self._pending, []
        document = replace(
            self._stored,
            owner=self._owner,
            session=self.session,
            writer=f"{self.session}-{next(self._writes)}",
            active_at=time.time_ns() // 1000,
            generation=generation,
            protocol_type=machine.protocol_type or self._stored.protocol_type,
            deleted=self._stored.deleted and not len(machine.members),
            group_type=CONSUMER if isinstance(machine, ConsumerGroup) else CLASSIC,
            members=machine.members_to_store if isinstance(machine, ConsumerGroup) else (),
        )
        for it in self._in_flight:
            document = it.change(document)
        try:
            etag = await self._files.write(document, self._etag)
        except Conflict:
            await self._look_who_wrote()
            return
        except SmqError as error:
            await self._fail(error)
            return
        self._stored, self._etag = document, etag
        self.is_owned = True
        self.written_at = self.confirmed_at = self._loop.time()
        self._resolve_in_flight(GroupError.NONE)
        machine.stored(version, self.now())
        self._after_event()

    async def _look_who_wrote(self) -> None:
        """A write of this session whose outcome was unknown may have been applied late: continue after it."""
        try:
            found = await self._files.read(self.name)
        except SmqError as error:
            await self._fail(error)
            return
        if found is None or found[0].session != self.session:
            owner = found[0].owner if found is not None else None
            log.info("a Kafka group has another coordinator", group=self.name, owner=owner)
            self.drop(GroupError.NOT_COORDINATOR)
            return
        self._stored, self._etag = found
        self._pending = self._in_flight + self._pending
        self._in_flight = []

    async def _fail(self, error: SmqError) -> None:
        log.warning("a Kafka group cannot be stored: its clients repeat", group=self.name, error=error.message)
        self._resolve_in_flight(GroupError.COORDINATOR_NOT_AVAILABLE)
        self.machine.store_failed(self.now())
        self._after_event()
        await asyncio.sleep(RETRY_SECONDS)

    def _resolve_in_flight(self, error: GroupError) -> None:
        for it in self._in_flight:
            _resolve(it.written, error)
        self._in_flight = []


def _resolve(future: asyncio.Future[GroupError], error: GroupError) -> None:
    if not future.done():
        future.set_result(error)
