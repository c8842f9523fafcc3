"""The leaders' part of atomic publishes in the simulation, with the rules from core and the operator's own reads.

A leader may die between any two steps. It may also be paused just before one of ``STEPS``: then another one takes over
and goes on, and this one continues later with what it knew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from smq_core.errors import InvalidRequest, SegmentSealed, SmqError, Unavailable
from smq_core.invariants import Message
from smq_core.model.atomic_publish import (
    AppState,
    AtomicFile,
    AtomicPublish,
    AtomicPublishes,
    complete_version,
)
from smq_core.model.entities import Segment, Topic
from smq_core.producing import roll_forward
from smq_core.producing.roll_forward import FilePartitions, RowRange
from smq_core.replica.log_entries import BatchId
from smq_core.replica.producer_sessions import OpenedProducer
from smq_operator.api.publishes import PublishService
from smq_operator.publishing.tried_segments import ReadSegments, last_sequence_before_forgotten, read_tried_segments
from smq_operator.runtime.readiness import Readiness
from smq_operator.runtime.store_pool import StorePool
from smq_storage.catalog import paths
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.results import ObjectMissing
from support.sim.brokers.producer_stream import incoming
from support.sim.clients import uploads
from support.sim.clients.atomic_publishes import upload
from support.sim.clients.messages import SimulatedSubBatch
from support.sim.clients.uploads import FOLDER, SimulatedUpload, UploadedFile
from support.sim.engine.network import SimulatedStream
from support.sim.engine.virtual_asyncio import VirtualLoop
from support.sim.engine.world import MS, SECOND, Future, Process, Steps
from support.sim.filer.blocking_store import BlockingStore
from support.sim.filer.chunk_chain import LAYOUT, PUBLISHES
from support.sim.filer.conditional_puts import PutApplied, put_conditionally

if TYPE_CHECKING:
    from support.sim.histories.atomic import AtomicHistory

STREAM_TIMEOUT = 3 * SECOND
# Where a leader may be paused while it rolls a publish forward.
STEPS = ("read the segments", "write", "complete")


class SimulatedCompleter:
    """A leader, as far as atomic publishes are concerned. ``pause_before`` is one of ``STEPS``, or nothing."""

    def __init__(self, history: AtomicHistory, address: str) -> None:
        self.history = history
        self.process = Process(history.world, address, history.world.unique(f"{address}."))
        self.process.node = self
        self.pause_before = ""
        self._filer: Any = BlockingStore(history.store, self.process)
        self._loop = VirtualLoop(self.process)
        self._service = PublishService(
            readiness=Readiness(),
            topics=_OneTopic(history),  # type: ignore[arg-type]
            completer=_Progress(),  # type: ignore[arg-type]
            store=StorePool(self._filer, None, RetryPolicy(3.0)),
            clock=lambda: history.world.now,
            max_upload_age=uploads.MAX_AGE,
        )
        self._acked: dict[tuple[str, int], set[int]] = {}
        self._sequences: dict[tuple[str, int], dict[int, int]] = {}
        self._copies: dict[str, AtomicFile] = {}
        history.loops.append(self._loop)
        history.network.listening[address] = self.process
        self.process.start(self._run())

    # ---- requests

    def on_claim_app(self, request: Any) -> Steps:
        return (yield self._loop.start(_unwrapped(PublishService.ClaimApp)(self._service, request)))

    def on_publish_atomically(self, request: Any) -> Steps:
        return (yield self._loop.start(_unwrapped(PublishService.PublishAtomically)(self._service, request)))

    def _change(self, change: Callable[[AtomicPublishes], Steps]) -> Steps:
        history = self.history
        while True:
            found = yield history.store.get(self.process, PUBLISHES)
            present, etag = found if found is not None else (AtomicPublishes(), None)
            changed = yield from change(present)
            if changed is present:
                return present
            new = replace(changed, writer=history.world.unique("writer"))
            result = yield from put_conditionally(
                history.store, self.process, PUBLISHES, new, etag, lambda it, new=new: it.writer == new.writer
            )
            if isinstance(result, PutApplied):
                return new

    def _get(self, path: str) -> Steps:
        found = yield self.history.store.get(self.process, path)
        if found is None:
            raise Unavailable(f"the store does not return {path}")
        return found[0]

    # ---- completing

    def _run(self) -> Steps:
        while True:
            yield self.history.world.between(50 * MS, 400 * MS)
            try:
                document = yield from self._get(PUBLISHES)
                for app in document.unfinished:
                    yield from self._complete(app, app.unfinished)
            except SmqError:
                continue

    def _complete(self, app: AppState, publish: AtomicPublish) -> Steps:
        """One attempt."""
        files = []
        for file in publish.files:
            files.append((yield from self._get(FOLDER + file.upload)))
        yield from self._reach("read the segments")
        key = app.app, app.epoch
        known = self._sequences.setdefault(key, {})
        read: ReadSegments | None = yield self._call(
            read_tried_segments, self.history.topic, app, publish, known, RetryPolicy(3.0)
        )
        if read is None:
            self.history.publishes.taken_over += 1
            return
        acked = self._acked.setdefault(key, set())
        partitions = [partitions_of(file.messages) for file in files]
        segments = read.tried.with_sequences(read.last_sequences)
        plan = roll_forward.plan_roll_forward(partitions, segments, acked)
        for batches in plan.batches:
            segment = read.tried.writable.get(batches.segment)
            if segment is not None:
                yield from self._reach("write")
                yield from self._write(app, publish, segment, files, batches.ranges)
                acked.add(segment.number)
        if roll_forward.plan_roll_forward(partitions, segments, acked).complete:
            yield from self._reach("complete")

            def completed(document: AtomicPublishes) -> Steps:
                return complete_version(document, app.app, app.epoch, self.history.world.now)
                yield

            yield from self._change(completed)
            self.history.world.note(self.process.name, "", f"{app.app} {publish.version} is complete")
            self.history.completed()

    def _reach(self, step: str) -> Steps:
        """Goes on when the process runs again, if it is to be paused before this step."""
        if self.pause_before == step:
            self.pause_before = ""
            self.history.pause_completer(self, step)
            yield 0

    def _call(self, call: Callable[..., Any], *args: Any) -> Future:
        """A blocking call of the operator, with this leader's view of the store."""

        async def work() -> Any:
            return await self._loop.run_in_executor(None, call, self._filer, *args)

        return self._loop.start(work())

    def _write(
        self, app: AppState, publish: AtomicPublish, segment: Segment, files: Sequence[Any], ranges: Sequence[RowRange]
    ) -> Steps:
        """Writes the ranges of one segment. Raises SmqError if they are not all acked."""
        checked_upto = 0
        while True:
            batches = []
            for sequence, rows in enumerate(ranges):
                file = self._copies.get(publish.files[rows.file].upload, publish.files[rows.file])
                messages = files[rows.file].messages[rows.first_row : rows.first_row + rows.rows]
                source = SimulatedUpload(file.upload, file.etag, rows.first_row)
                sub_batch = SimulatedSubBatch(0, messages, segment.schema_version, source)
                batches.append(incoming(sub_batch, BatchId(app.producer, app.epoch, sequence, app.producer)))
            try:
                forgotten_upto = yield self._stream(app, segment, batches, checked_upto)
            except InvalidRequest:
                for number in {rows.file for rows in ranges}:
                    yield from self._renew(publish.files[number], files[number])
                raise
            if forgotten_upto is None:
                return
            last, checked_upto = yield self._call(
                last_sequence_before_forgotten, self.history.topic, app, segment.name, forgotten_upto
            )
            if last + 1 >= len(ranges):
                return
            if last >= 0:
                self.history.publishes.roll(segment)
                raise Unavailable(f"{segment.name} has forgotten {app.producer}")

    def _renew(self, file: AtomicFile, content: UploadedFile) -> Steps:
        """Uploads the rows again if the file is too old, at the same places."""
        copy = self._copies.get(file.upload)
        current = content if copy is None else (yield from self._get(FOLDER + copy.upload))
        if uploads.is_too_old(current, self.history.world.now):
            self._copies[file.upload] = yield from upload(self.history, self.process, content.messages)
            self.history.publishes.renewed += 1

    def _stream(self, app: AppState, segment: Segment, batches: Sequence[Any], checked_upto: int) -> Future:
        """Done with None when all are acked; with an offset if the segment may have forgotten the producer."""
        history, primary, done = self.history, segment.primary, Future()
        stream = SimulatedStream(
            history.network, self.process, primary.address, "produce", segment.name, primary.incarnation,
            app.producer, app.epoch, app.producer,
        )  # fmt: skip
        missing = set(range(len(batches)))

        def on_message(message: Any) -> None:
            match message:
                case ("opened", OpenedProducer() as opened):
                    if opened.last_sequence is None and opened.forgotten_upto > checked_upto:
                        done.set(opened.forgotten_upto)
                    else:
                        for batch in batches:
                            stream.up((batch, 0))
                case ("ack", int(sequence), _):
                    missing.discard(sequence)
                    if not missing:
                        done.set(None)
                case ("rejected", _):
                    done.fail(InvalidRequest("rejected"))
                case ("sealed", _):
                    done.fail(SegmentSealed(segment.name))
                case SmqError():
                    done.fail(message)
                case None:
                    done.fail(Unavailable("the stream ended"))

        stream.on_client_message = on_message
        self.process.after(STREAM_TIMEOUT, lambda: done.fail(Unavailable("no acks in time")))
        done.then(lambda _: stream.leave())
        return done


class _OneTopic:
    """The topics of a leader that knows the layout."""

    def __init__(self, history: AtomicHistory) -> None:
        self._history = history

    def topic(self, name: str) -> Any:
        history = self._history
        return SimpleNamespace(name=name, topic=history.topic, layout=history.store.truth(LAYOUT))


class _Progress:
    """The completer as the service sees it."""

    problems: Mapping[tuple[str, str], str] = MappingProxyType({})

    def committed(self, topic: Topic) -> None:
        """The completer looks for commits all the time."""

    async def wait_for_progress(self, timeout: float) -> None:
        await asyncio.sleep(min(timeout, 0.1))


def _unwrapped(handler: Any) -> Callable[..., Coroutine[Any, Any, Any]]:
    """The handler without the conversion of its errors to those of gRPC."""
    inner: Callable[..., Coroutine[Any, Any, Any]] = handler.__wrapped__
    return inner


def check_upload(store: Any, topic: Topic, file: AtomicFile, schema: object, filer_now: int, max_age: int) -> None:
    """Stands in for ``check_file``, since uploads are no Parquet files here."""
    try:
        found = store.get(f"{paths.uploads_folder(topic.uid)}/{file.upload}")
    except ObjectMissing:
        raise Unavailable(f"the store does not return {file.upload}") from None
    if uploads.is_too_old(found.data, filer_now):
        raise InvalidRequest(f"{file.upload} is too old")


def kept_uploads(process: Process, history: AtomicHistory) -> Steps:
    """The paths of uploads of unfinished publishes, which the collector must not delete."""
    found = yield history.store.get(process, PUBLISHES)
    apps = found[0].unfinished if found is not None else ()
    return {FOLDER + file.upload for app in apps for file in app.unfinished.files}


def partitions_of(messages: Sequence[Message]) -> FilePartitions:
    counts: dict[int, int] = {}
    for message in messages:
        counts[message.partition] = counts.get(message.partition, 0) + 1
    return sorted(counts.items())
