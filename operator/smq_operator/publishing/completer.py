"""Runs beside the reconcile loop and completes committed publishes: brings all rows of their files into the log.

It is level-triggered: the topic's document says what is unfinished, so no state has to survive a leader. Two leaders
that complete one publish at the same time do no harm, because both write the same ranges with the same sequences
(``smq_core/producing/roll_forward.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import structlog

from smq_core.errors import ReferenceRejected, SmqError, Unavailable
from smq_core.model.atomic_publish import AppState, AtomicFile, AtomicPublish, AtomicPublishes, complete_version
from smq_core.model.entities import SECOND, Micros, Topic, TopicSchema
from smq_core.model.schema_evolution import schema_history
from smq_core.producing.roll_forward import FilePartitions, RowRange, SegmentBatches, plan_roll_forward
from smq_operator.brokers.dialer import OPEN, BrokerDialer
from smq_operator.publishing.files import read_partitions, reference_of
from smq_operator.publishing.reference_stream import publish_references
from smq_operator.publishing.tried_segments import ReadSegments, last_sequence_before_forgotten, read_tried_segments
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.runtime.clock import Clock
from smq_operator.runtime.store_pool import StorePool
from smq_operator.runtime.task_runner import TaskRunner
from smq_storage.catalog.atomic_publishes import change_publishes, read_publishes
from smq_storage.chunks.schemas import message_schema
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store
from smq_storage.uploads.renewal import renew_upload

log = structlog.get_logger(__name__)

POLL_SECONDS = 1.0
# After an attempt that did not complete a publish, because segments are being replaced or a broker is away.
RETRY_SECONDS = 0.2
# More after an error that no attempt should have.
FAILURE_RETRY_SECONDS = 5.0
# The time after which a topic's document is read again, because another leader may have committed something.
CHECK_AGAIN_AFTER_US: Micros = 60 * SECOND
STREAM_THREADS = 16

# The uid of a topic, and an app.
Key = tuple[str, str]


@dataclass(slots=True)
class _Attempt:
    """What this leader knows of one unfinished publish."""

    epoch: int
    partitions: list[FilePartitions] | None = None
    sequences: dict[int, int] = field(default_factory=dict)
    """The last sequences of sealed segments, by number."""
    acked: set[int] = field(default_factory=set)
    """The segments that acked all their ranges."""
    copies: dict[tuple[int, int], AtomicFile] = field(default_factory=dict)
    """Files that were written again, by the number of the file and the version of the schema."""


class PublishCompleter:
    """See the module's docstring. Use it on the event loop. ``problems`` says why a publish is not complete."""

    def __init__(
        self,
        *,
        topics: Mapping[str, ManagedTopic],
        store: StorePool,
        tasks: TaskRunner,
        clock: Clock,
        dialer: BrokerDialer = OPEN,
    ) -> None:
        self._topics = topics
        self._store = store
        self._tasks = tasks
        self._now = clock
        self._publish = partial(publish_references, dialer=dialer)
        self._streams = ThreadPoolExecutor(STREAM_THREADS, thread_name_prefix="publish")
        self._attempts: dict[Key, _Attempt] = {}
        self._running: set[Key] = set()
        self._checked_at: dict[str, Micros] = {}
        self._wake = asyncio.Event()
        self._changed = asyncio.Event()
        self._renewal = asyncio.Lock()
        """One file is renewed at a time, because each renewal takes memory, disk and CPU."""
        self.problems: dict[Key, str] = {}

    async def run(self) -> None:
        """Runs until it is cancelled."""
        while True:
            self._wake.clear()
            for managed in list(self._topics.values()):
                topic = managed.topic
                if topic is None or managed.layout is None or managed.deleted:
                    continue
                if self._now() - self._checked_at.get(topic.uid, -CHECK_AGAIN_AFTER_US) >= CHECK_AGAIN_AFTER_US:
                    await self._check(managed, topic)
            try:
                async with asyncio.timeout(POLL_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def committed(self, topic: Topic) -> None:
        """The topic's document has something new to complete."""
        self._checked_at.pop(topic.uid, None)
        self._wake.set()

    async def wait_for_progress(self, timeout: float) -> None:
        """Returns when any publish was completed, or after ``timeout`` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _check(self, managed: ManagedTopic, topic: Topic) -> None:
        """Starts what is unfinished in this topic and does not run yet."""
        try:
            document = await self._store.run(read_publishes, topic.name, topic.uid)
        except SmqError as error:
            log.warning("publishes.unreadable", topic=topic.name, error=error.code, message=error.message)
            return
        self._checked_at[topic.uid] = self._now()
        managed.unfinished_publishes = {
            it.app: it.unfinished.committed_at for it in document.unfinished if it.unfinished is not None
        }
        for app in document.unfinished:
            key = (topic.uid, app.app)
            if key not in self._running:
                self._tasks.spawn(self._complete(topic, app.app), then=partial(self._running.discard, key))
                self._running.add(key)

    async def _complete(self, topic: Topic, name: str) -> None:
        """Tries until the publish is complete, or the topic is gone."""
        key = (topic.uid, name)
        while self._is_living(topic):
            try:
                if await self._try(topic, name):
                    break
            except SmqError as error:
                if self.problems.get(key) != error.message:
                    log.warning("publish.waits", topic=topic.name, app=name, error=error.code, message=error.message)
                self.problems[key] = error.message
            except Exception as error:
                # A mistake in this code or in a file. The publish is committed, so giving up would lose its rows.
                problem = f"the leader failed: {type(error).__name__}: {error}"
                if self.problems.get(key) != problem:
                    log.exception("publish.failed", topic=topic.name, app=name)
                self.problems[key] = problem
                await asyncio.sleep(FAILURE_RETRY_SECONDS)
            await asyncio.sleep(RETRY_SECONDS)
        self.problems.pop(key, None)
        self._attempts.pop(key, None)
        for managed in self._topics.values():
            if managed.topic is not None and managed.topic.uid == topic.uid:
                managed.unfinished_publishes.pop(name, None)
        event, self._changed = self._changed, asyncio.Event()
        event.set()

    def _is_living(self, topic: Topic) -> bool:
        return any(
            it.topic is not None and it.topic.uid == topic.uid and not it.deleted for it in self._topics.values()
        )

    async def _try(self, topic: Topic, name: str) -> bool:
        """One attempt. Whether the app has nothing unfinished any more. Raises SmqError."""
        app = (await self._store.run(read_publishes, topic.name, topic.uid)).app(name)
        if app is None or app.unfinished is None:
            return True
        attempt = self._attempts.get((topic.uid, name))
        if attempt is None or attempt.epoch != app.epoch:
            attempt = self._attempts[topic.uid, name] = _Attempt(app.epoch)
        publish = app.unfinished
        if attempt.partitions is None:
            attempt.partitions = await self._store.run(_read_all_partitions, topic, publish)
        read = await self._store.run(
            read_tried_segments, topic, app, publish, attempt.sequences, self._store.retry_policy
        )
        if read is None:
            return False
        segments, writable = read.tried.with_sequences(read.last_sequences), read.tried.writable
        plan = plan_roll_forward(attempt.partitions, segments, attempt.acked)
        writes = [
            self._write(topic, app, publish, batches, read, attempt)
            for batches in plan.batches
            if batches.segment in writable
        ]
        results = await asyncio.gather(*writes, return_exceptions=True)
        if any(result is None for result in results):
            plan = plan_roll_forward(attempt.partitions, segments, attempt.acked)
        if plan.complete:
            await self._store.run(_record_complete, topic, app, self._now(), self._store.retry_policy)
            log.info("publish.completed", topic=topic.name, app=name, version=publish.version, files=len(publish.files))
            return True
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return False

    async def _write(
        self,
        topic: Topic,
        app: AppState,
        publish: AtomicPublish,
        batches: SegmentBatches,
        read: ReadSegments,
        attempt: _Attempt,
    ) -> None:
        """Writes the ranges of one segment, and remembers that it has acked them. Raises SmqError."""
        segment = read.tried.writable[batches.segment]
        schemas = [it for it in schema_history(read.layout, topic.spec.schema) if it.version <= segment.schema_version]
        if any(file.schema_version > segment.schema_version for file in publish.files):
            return  # it has older columns, so it is being replaced
        files = await self._files_for(topic, publish, batches.ranges, schemas, attempt)
        references = [reference_of(files[rows.file], rows) for rows in batches.ranges]
        write = partial(self._publish, topic, segment, message_schema(schemas[-1].columns), app, references)
        loop = asyncio.get_running_loop()
        try:
            forgotten_upto = await loop.run_in_executor(self._streams, write)
            while forgotten_upto is not None:
                last, checked_upto = await self._store.run(
                    last_sequence_before_forgotten, topic, app, segment.name, forgotten_upto
                )
                if last + 1 >= len(references):
                    break
                if last >= 0:
                    raise Unavailable(
                        f"{segment.name} has forgotten the producer of app {app.app!r}, though it has some rows of its "
                        "publish: the publish goes on when the segment is sealed. `smq segment roll` does that now"
                    )
                again = partial(write, checked_upto=checked_upto)
                forgotten_upto = await loop.run_in_executor(self._streams, again)
        except ReferenceRejected as error:
            if error.field == "age":
                number = next(n for n, file in files.items() if file.upload == error.upload)
                await self._renew(topic, publish, number, error.upload, schemas, attempt)
            raise
        attempt.acked.add(segment.number)

    async def _files_for(
        self,
        topic: Topic,
        publish: AtomicPublish,
        ranges: Sequence[RowRange],
        schemas: Sequence[TopicSchema],
        attempt: _Attempt,
    ) -> dict[int, AtomicFile]:
        """The files of these ranges with the columns of the newest of ``schemas``, by number. Raises SmqError."""
        version, found = schemas[-1].version, {}
        for number in sorted({rows.file for rows in ranges}):
            file = publish.files[number]
            if file.schema_version != version:
                await self._renew(topic, publish, number, file.upload, schemas, attempt)
            found[number] = attempt.copies.get((number, version), file)
        return found

    async def _renew(
        self,
        topic: Topic,
        publish: AtomicPublish,
        number: int,
        unusable: str,
        schemas: Sequence[TopicSchema],
        attempt: _Attempt,
    ) -> None:
        """Copies a file, unless another upload than the ``unusable`` one has taken its place already."""
        file, key = publish.files[number], (number, schemas[-1].version)
        async with self._renewal:
            if attempt.copies.get(key, file).upload == unusable:
                log.info("publish.file_renewed", topic=topic.name, upload=unusable, schema_version=key[1])
                attempt.copies[key] = await self._store.run(renew_upload, topic.uid, file, schemas)


def _read_all_partitions(store: Store, topic: Topic, publish: AtomicPublish) -> list[FilePartitions]:
    return [read_partitions(store, topic, file) for file in publish.files]


def _record_complete(store: Store, topic: Topic, app: AppState, now: Micros, retry_policy: RetryPolicy) -> None:
    def completed(document: AtomicPublishes) -> AtomicPublishes:
        return complete_version(document, app.app, app.epoch, now)

    change_publishes(store, topic.name, topic.uid, completed, retry_policy)
