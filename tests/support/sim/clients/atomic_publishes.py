"""Atomic publishes in the simulation: publishers of apps, and the leaders' part, with the operator's rules from core.

Rows are uploads, as those of producers that publish by reference, so brokers check and a collector deletes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from smq_core.errors import InvalidRequest, ProducerFenced, SegmentSealed, SmqError, StoreStateUnknown, Unavailable
from smq_core.invariants import Message
from smq_core.model.atomic_publish import (
    AppState,
    AtomicFile,
    AtomicPublish,
    AtomicPublishes,
    CommitResult,
    LayoutMark,
    claim_app,
    commit_version,
    complete_version,
)
from smq_core.model.entities import Segment
from smq_core.model.keyspace import partition_of
from smq_core.producing import roll_forward, tried_segments
from smq_core.producing.roll_forward import FilePartitions, RowRange
from smq_core.replica.log_entries import BatchId
from smq_core.replica.producer_sessions import OpenedProducer
from support.sim.brokers.hosted_segment import incoming
from support.sim.clients import uploads
from support.sim.clients.messages import SimulatedSubBatch
from support.sim.clients.uploads import FOLDER, SimulatedUpload, UploadedFile
from support.sim.engine.network import SimulatedStream
from support.sim.engine.world import MS, SECOND, Future, Process, Steps
from support.sim.filer.chunk_chain import INDEX, LAYOUT, SimulatedChain
from support.sim.filer.conditional_puts import PutApplied, put_conditionally

if TYPE_CHECKING:
    from support.sim.histories.atomic import AtomicHistory

PUBLISHES = "publishes"
STREAM_TIMEOUT = 3 * SECOND


class SimulatedPublisher:
    """One client that publishes the versions ``start .. stop - 1`` of an app, each in one to three files."""

    def __init__(self, history: AtomicHistory, app: str, start: int, stop: int, dice: Random) -> None:
        self.history = history
        self.app = app
        self.version = start
        self.stop = stop
        self.name = self.owner = history.world.unique(f"{app}-")
        self.process = Process(history.world, self.name, self.name)
        self.done = False
        self._dice = dice
        self.process.start(self._run())

    def _run(self) -> Steps:
        try:
            yield from self._call("claim", self.app, self.owner)
            while self.version < self.stop:
                yield self._dice.randint(0, 500) * MS
                self.history.publishes.results[(yield from self._publish())] += 1
                self.version += 1
        except ProducerFenced:
            self.history.publishes.fenced += 1
            self.history.world.note(self.name, "", f"is fenced at version {self.version}")
        self.done = True

    def _publish(self) -> Steps:
        """Publishes the version, again from the upload on if that took too long, and waits until it is complete."""
        files = yield from self._upload()
        request = self.history.world.unique("request")
        self.history.publishes.requested(request, self.owner)
        while True:
            try:
                result = yield from self._call("commit", self.app, self.owner, self.version, request, files)
            except InvalidRequest:
                files = yield from self._upload()
            else:
                if result is not None:
                    return result

    def _call(self, method: str, *args: Any) -> Steps:
        """Repeats the call until a leader has answered it. Raises ProducerFenced."""
        while True:
            address = self._dice.choice(list(self.history.completers))
            try:
                return (yield self.history.network.call(self.process, address, method, *args))
            except (ProducerFenced, InvalidRequest):
                raise
            except SmqError:
                yield self._dice.randint(20, 300) * MS

    def _upload(self) -> Steps:
        world, found = self.history.world, []
        for number in range(self._dice.randint(1, 3)):
            producer = world.unique(f"{self.app}.{self.version}.{number}.")
            keys = [f"k{self._dice.randrange(8)}" for _ in range(self._dice.randint(1, 12))]
            partitions = self.history.settings.partitions
            messages = [
                Message(producer, serial, key, partition_of(key.encode(), partitions), world.now)
                for serial, key in enumerate(keys)
            ]
            age = self._dice.choice([0, 0, 0, uploads.MAX_AGE - self._dice.randint(50, 1500) * MS])
            found.append((yield from upload(self.history, self.process, messages, age)))
        return tuple(found)


class SimulatedCompleter:
    """A leader, as far as atomic publishes are concerned. Its process may die between any two steps."""

    def __init__(self, history: AtomicHistory, address: str) -> None:
        self.history = history
        self.process = Process(history.world, address, history.world.unique(f"{address}."))
        self.process.node = self
        self._acked: dict[tuple[str, int], set[int]] = {}
        self._copies: dict[str, AtomicFile] = {}
        history.network.listening[address] = self.process
        self.process.start(self._run())

    # ---- requests

    def on_claim(self, app: str, owner: str) -> Steps:
        world = self.history.world

        def claimed(document: AtomicPublishes) -> Steps:
            return claim_app(document, app, owner, world.unique("producer"), world.now)
            yield

        yield from self._change(claimed)

    def on_commit(self, app: str, owner: str, version: int, request: str, files: Sequence[AtomicFile]) -> Steps:
        """What became of the version; None while it is not complete."""
        result = CommitResult.COMMITTED

        def committed(document: AtomicPublishes) -> Steps:
            nonlocal result
            changed, result = commit_version(
                document, app, owner, version, request, files, LayoutMark(0, (), 0), self.history.world.now
            )
            if changed is document:
                return document
            yield from self._check(files)
            layout = yield from self._get(LAYOUT)
            mark = LayoutMark.of(layout)
            changed, result = commit_version(
                document, app, owner, version, request, files, mark, self.history.world.now
            )
            return changed

        document = yield from self._change(committed)
        state = document.app(app)
        return None if state is not None and state.unfinished is not None else result

    def _check(self, files: Sequence[AtomicFile]) -> Steps:
        for file in files:
            found = yield from self._get(FOLDER + file.upload)
            if uploads.is_too_old(found, self.history.world.now):
                raise InvalidRequest(f"{file.upload} is too old")

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
        layout = yield from self._get(LAYOUT)
        index = yield self.history.store.get(self.process, INDEX)
        entries = index[0].entries if index is not None else ()
        tried = tried_segments.find_tried_segments(publish.layout, layout, entries)
        if tried is None:
            return
        sequences = {}
        for number, entry in tried.sealed.items():
            sequences[number] = yield from self._sealed_sequence(entry.name, app)
        acked = self._acked.setdefault((app.app, app.epoch), set())
        partitions = [partitions_of(file.messages) for file in files]
        segments = tried.with_sequences(sequences)
        plan = roll_forward.plan_roll_forward(partitions, segments, acked)
        for batches in plan.batches:
            segment = tried.writable.get(batches.segment)
            if segment is not None:
                yield from self._write(app, publish, segment, files, batches.ranges)
                acked.add(segment.number)
        if roll_forward.plan_roll_forward(partitions, segments, acked).complete:

            def completed(document: AtomicPublishes) -> Steps:
                return complete_version(document, app.app, app.epoch, self.history.world.now)
                yield

            yield from self._change(completed)
            self.history.world.note(self.process.name, "", f"{app.app} {publish.version} is complete")

    def _sealed_sequence(self, segment: str, app: AppState) -> Steps:
        infos = yield from self._infos(segment)
        if not infos or not infos[-1].sealed:
            raise Unavailable(f"{segment} has no seal chunk yet")
        last = tried_segments.last_sequence(infos[-1].producers, app)
        if last is None and infos[-1].forgotten_upto:
            return _last_in(infos, app)
        return -1 if last is None else last

    def _infos(self, segment: str) -> Steps:
        chain, at, infos = SimulatedChain(self.history.store, self.process, segment), 0, []
        while (info := (yield from chain.info(at))) is not None:
            infos.append(info)
            if info.sealed:
                break
            at = info.end
        return infos

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
            infos = yield from self._infos(segment.name)
            last = _last_in(infos, app)
            if not infos or infos[-1].end < forgotten_upto:
                raise Unavailable(f"{segment.name} has rows in memory")
            if last + 1 >= len(ranges):
                return
            if last >= 0:
                self.history.publishes.roll(segment)
                raise Unavailable(f"{segment.name} has forgotten {app.producer}")
            checked_upto = forgotten_upto

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


def kept_uploads(process: Process, history: AtomicHistory) -> Steps:
    """The paths of uploads of unfinished publishes, which the collector must not delete."""
    found = yield history.store.get(process, PUBLISHES)
    apps = found[0].unfinished if found is not None else ()
    return {FOLDER + file.upload for app in apps for file in app.unfinished.files}


def upload(history: AtomicHistory, process: Process, messages: Sequence[Message], age: int = 0) -> Steps:
    """Writes the rows in the order of their partitions, under a new name. Returns the file.

    It is backdated by ``age``, because a history is shorter than uploads may get old.
    """
    rows = tuple(sorted(messages, key=lambda m: m.partition))
    while True:
        name = history.world.unique("atomic")
        try:
            etag = yield history.store.put(process, FOLDER + name, UploadedFile(rows, history.world.now - age), None)
        except (StoreStateUnknown, SmqError):
            yield 100 * MS  # under another name, since a late PUT may still be applied
        else:
            history.publishes.uploaded(name, rows)
            times = [m.sent_at for m in rows]
            return AtomicFile(name, etag, len(rows), len(rows), min(times), max(times))


def partitions_of(messages: Sequence[Message]) -> FilePartitions:
    counts: dict[int, int] = {}
    for message in messages:
        counts[message.partition] = counts.get(message.partition, 0) + 1
    return sorted(counts.items())


def _last_in(infos: Sequence[Any], app: AppState) -> int:
    found = (tried_segments.last_sequence(info.producers, app) for info in infos)
    return max((it for it in found if it is not None), default=-1)
