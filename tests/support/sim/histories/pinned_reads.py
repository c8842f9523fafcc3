"""A history of pinned reads: leaders with wrong clocks remove segments and delete files, while readers read them.

Leaders run the operator's own retention, and readers the storage's own ``PinnedReads``. A reader may be paused until
its pin has expired, or killed, or go on until its pin is too old. Uploads are published by reference meanwhile.
``run(seed)`` returns None, or a text that says what went wrong.
"""

from __future__ import annotations

import uuid
from collections.abc import MutableMapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import cycle
from random import Random
from typing import Any
from unittest.mock import patch

from smq_core.errors import DataLost, PinExpired, SmqError
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import Durability, Layout, Phase, Reason, Replica, SealedSegment, Segment, Topic, TopicSpec
from smq_core.model.keyspace import KeyRange
from smq_core.model.reference import Reference
from smq_operator.cleanup import retention, unreferenced_uploads
from smq_operator.cleanup.filer_clock import ClockReading
from smq_operator.runtime.cleanup_settings import CleanupSettings
from smq_storage.catalog import paths
from smq_storage.catalog.filer_time import read_filer_time
from smq_storage.catalog.sealed_index import IndexPage
from smq_storage.catalog.topics import CurrentTopic
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.json_codec import to_json
from smq_storage.tables.pinned_reads import PinnedReads
from support.sim.checks.pin_checker import PinChecker
from support.sim.checks.protocol_checker import InvariantViolated
from support.sim.clients.uploads import FOLDER
from support.sim.engine.log_capture import logs_to
from support.sim.engine.network import SimulatedNetwork
from support.sim.engine.virtual_asyncio import VirtualLoop
from support.sim.engine.virtual_threads import VirtualThread
from support.sim.engine.world import MS, SECOND, Process, Steps, World
from support.sim.filer.blocking_store import TOPIC, UID, BlockingChain, BlockingStore
from support.sim.filer.chunk_chain import INDEX, LAYOUT, StoredChunk, path
from support.sim.filer.object_store import SimulatedStore

ROWS = 10
KEPT_SEGMENTS = 3
LIFETIME = 8 * SECOND
UPLOADS_GRACE = 24 * SECOND
CLEANUP = CleanupSettings(
    removed_files_grace_us=15 * SECOND, max_pin_age_us=30 * SECOND, uploads_grace_us=UPLOADS_GRACE
)
HORIZON = 70 * SECOND
RECOVERY_TIME = CLEANUP.max_pin_age_us + CLEANUP.removed_files_grace_us + 25 * SECOND
# The share of readers that go on until their pin has ended.
ENDLESS = 0.1
HOLDER = Replica("b", "i", "b:1")


class PinHistory:
    def __init__(self, seed: int) -> None:
        self.world = world = World(seed)
        self.dice = Random(f"pins {seed}")
        self.network = SimulatedNetwork(world)
        self.store = SimulatedStore(world, self.network)
        self.topic = Topic(TOPIC, UID, TopicSpec(partitions=4, retention_bytes=KEPT_SEGMENTS * ROWS))
        self.checker = PinChecker(world, self.store, CLEANUP)
        self.loops: list[VirtualLoop] = []
        self.leaders: list[Process] = []
        self.expired = self.completed = self.published = self.numbers = 0
        self._ended = False
        self.store.put_at_once(f"doc/{paths.current(TOPIC)}", to_json(CurrentTopic(UID)))
        self.store.put_at_once(INDEX, IndexPage())
        self.store.put_at_once(LAYOUT, self._layout(0))
        self.wrong_clocks = self.dice.random() < 0.5
        """Whether leaders start on machines with wrong clocks, which only delays a deletion."""
        self.crowded = self.dice.random() < 0.4
        """Whether all readers are so slow that there is always a pin."""
        self._set_faults(self.dice.choice([0.0, 0.02, 0.1]))
        for number in range(self.dice.choice([1, 2, 2])):
            self._start_leader(f"leader-{number}")
        world.after(SECOND, self._seal)
        world.after(SECOND, self._upload)
        world.after(2 * SECOND, self._start_reader)

    def log(self, leader: str, event: MutableMapping[str, Any]) -> None:
        self.world.note(leader, "", " ".join(f"{key}={value}" for key, value in event.items() if key != "exc_info"))

    def run(self) -> None:
        """Raises InvariantViolated."""
        ids = Random(self.world.seed)
        with (
            logs_to(self),
            patch.object(retention, "ChunkChain", BlockingChain),
            patch.object(unreferenced_uploads, "ChunkChain", BlockingChain),
            patch.object(uuid, "uuid4", lambda: uuid.UUID(int=ids.getrandbits(128))),
        ):
            try:
                self.world.run_until(HORIZON)
                self._set_faults(0.0)
                self._ended = True
                self.world.run_until(HORIZON + RECOVERY_TIME)
                self.checker.check_end(HORIZON, in_time=not self.wrong_clocks)
            finally:
                for loop in self.loops:
                    loop.abandon()

    def _set_faults(self, share: float) -> None:
        faults = self.store.faults
        faults.lost_answer = faults.late = faults.refused = faults.false_conflict = faults.failed_get = share / 4
        faults.stale_get = share * 2

    # ---- the log

    def _layout(self, number: int) -> Layout:
        before = (f"t-0-4-{number - 1}",) if number else ()
        living = Segment(
            name=f"t-0-4-{number}",
            number=number,
            range=KeyRange(0, 4),
            phase=Phase.OPEN,
            durability=Durability.STORED,
            replicas=(HOLDER,),
            predecessors=before,
        )
        return Layout(
            topic=TOPIC,
            uid=UID,
            partitions=4,
            version=1,
            next_number=number + 1,
            segments=(living,),
            writer=f"w{number}",
        )

    def _seal(self) -> None:
        """The open segment is sealed, and continued by the next one."""
        number, store = self.numbers, self.store
        name = f"t-0-4-{number}"
        end = self.checker.ends.get(name, 0)
        if end == 0:
            end = self._append(None)
        store.put_at_once(
            path(name, end),
            StoredChunk(ChunkInfo(segment=name, first=end, rows=0, writer="w", nonce="seal", sealed=True)),
        )
        self.numbers += 1
        entry = SealedSegment(
            name=name,
            number=number,
            range=KeyRange(0, 4),
            end=end,
            predecessors=(f"t-0-4-{number - 1}",) if number else (),
            successors=(f"t-0-4-{number + 1}",),
            opened_because=Reason.ROLL,
            sealed_because=Reason.ROLL,
            opened_at=self.world.now,
            sealed_at=self.world.now,
            bytes=ROWS,
        )
        page = store.truth(INDEX)
        store.overwrite(INDEX, replace(page, entries=(*page.entries, entry), writer=self.world.unique("index")))
        store.overwrite(LAYOUT, self._layout(self.numbers))
        if self.numbers < 200:
            self.world.after(self.dice.randint(SECOND, 4 * SECOND), self._seal)

    def _append(self, upload: str | None) -> int:
        """Appends a chunk to the open segment. Returns the segment's end."""
        name = f"t-0-4-{self.numbers}"
        first = self.checker.ends.get(name, 0)
        reference = (
            Reference(
                upload=upload,
                etag="etag",
                first_row=0,
                rows=ROWS,
                bytes=1,
                partition_min=0,
                partition_max=3,
                timestamp_min=0,
                timestamp_max=0,
            )
            if upload is not None
            else None
        )
        info = ChunkInfo(segment=name, first=first, rows=ROWS, writer="w", nonce=f"n{first}", reference=reference)
        self.store.put_at_once(path(name, first), StoredChunk(info))
        return self.checker.ends[name]

    def _upload(self) -> None:
        """A producer uploads a file. It is published a while later, unless it is too old then."""
        name = f"{self.world.unique('u')}.parquet"
        self.store.put_at_once(FOLDER + name, b"PAR1")
        self.world.after(self.dice.randint(0, UPLOADS_GRACE), lambda: self._check_upload(name))
        if not self._ended:
            self.world.after(self.dice.randint(2 * SECOND, 8 * SECOND), self._upload)

    def _check_upload(self, name: str) -> None:
        """The primary checks the age by the filer's time, and its chunk is in the chain a moment later."""
        versions = self.store.things[FOLDER + name].versions
        if versions[-1][1] is not None and self.world.now - versions[0][0] <= CLEANUP.max_upload_age_us:
            self.published += 1
            self.world.after(self.dice.randint(0, 3 * SECOND), lambda: self._append(name) and None)

    # ---- leaders

    def _start_leader(self, host: str) -> None:
        process = Process(self.world, host, self.world.unique(f"{host}."))
        self.leaders.append(process)
        loop = VirtualLoop(process)
        self.loops.append(loop)
        skew = self.dice.choice([0, -500 * SECOND, 500 * SECOND]) if self.wrong_clocks else 0
        process.start(self._lead(process, loop, skew))
        self.world.after(self.dice.randint(5 * SECOND, 60 * SECOND), lambda: self._replace_leader(process))

    def _replace_leader(self, process: Process) -> None:
        """Kills it between any two calls, or pauses it; another one begins in any case."""
        if self._ended:
            return
        if self.dice.random() < 0.5:
            process.kill()
        else:
            process.pause()
            self.world.after(self.dice.randint(SECOND, 10 * SECOND), process.resume)
        self._start_leader(process.host)

    def _lead(self, process: Process, loop: VirtualLoop, skew: int) -> Steps:
        store: Any = BlockingStore(self.store, process)
        policy = RetryPolicy(3.0)

        def collect() -> None:
            clocks = ClockReading(leader=self.world.now + skew, filer=read_filer_time(store))
            began = {("i", f"t-0-4-{self.numbers}")}
            known = retention.read_consistent(store, self.topic)
            retention.remove_expired(store, self.topic, known, [], began, clocks, policy)
            retention.delete_files(store, self.topic, clocks, CLEANUP, policy)
            before = datetime.fromtimestamp((clocks.filer - CLEANUP.uploads_grace_us) / SECOND, UTC)
            written = {("i", f"t-0-4-{self.numbers}"): unreferenced_uploads.WrittenUploads(0, before)}
            unreferenced_uploads.collect_unreferenced_uploads(store, self.topic, before, written)

        while True:
            yield self.world.between(SECOND, 3 * SECOND)
            try:
                yield loop.start(_in_thread(loop, collect))
            except SmqError as error:
                self.world.note(process.name, "", f"collection is deferred: {error.message}")

    # ---- readers

    def _start_reader(self) -> None:
        process = Process(self.world, "reader", self.world.unique("reader."))
        loop = VirtualLoop(process)
        self.loops.append(loop)
        process.start(self._read(process, loop))
        share = self.dice.random()
        # Some are paused or killed while they pin and plan.
        at = self.dice.randint(0, 60 * MS) if self.dice.random() < 0.3 else self.dice.randint(SECOND, 15 * SECOND)
        if share < 0.2:
            self.world.after(at, process.kill)
        elif share < 0.6:
            self.world.after(at, process.pause)
            self.world.after(at + self.dice.randint(SECOND, 30 * SECOND), process.resume)
        # They follow each other without a gap, also after the horizon.
        self.world.after(self.dice.randint(SECOND, 5 * SECOND), self._start_reader)

    def _read(self, process: Process, loop: VirtualLoop) -> Steps:
        store: Any = BlockingStore(self.store, process)
        dice = Random(f"{self.world.seed} {process.name}")
        slow = 3 * SECOND if self.crowded else dice.choice([200 * MS, 800 * MS, 3 * SECOND])

        def read() -> None:
            ids = (f"{process.name}-{n}" for n in range(10**9))
            reads = PinnedReads(store, lambda: next(ids), lambda: self.world.now, RetryPolicy(3.0))
            with reads.begin(TOPIC, UID, process.name, LIFETIME) as pinned:
                entries = pinned.files.index.entries
                self.checker.planned(pinned.pin_id, {it.name: it.number for it in entries})
                files = [(it.name, at) for it in entries for at in (*range(0, it.end, ROWS), it.end)]
                try:
                    for name, first in cycle(files) if dice.random() < ENDLESS else files:
                        VirtualThread.current().wait(dice.randint(0, slow))
                        pinned.keep()
                        if self._missing(store, path(name, first)):
                            pinned.explain(DataLost("the file is gone", segment=name, start=first, stop=first + 1))
                finally:
                    self.checker.released(pinned.pin_id)

        try:
            yield loop.start(_in_thread(loop, read))
            self.completed += 1
        except PinExpired as error:
            self.expired += 1
            self.world.note(process.name, "", error.message)
        except DataLost as error:
            self.checker.lost(process.name, error)
        except SmqError as error:
            self.world.note(process.name, "", f"the read fails: {error.message}")

    def _missing(self, store: BlockingStore, name: str) -> bool:
        """Whether the file is gone. An answer that is out of date, which lacks a new file, does not count."""
        found = VirtualThread.current().wait(self.store.get(store.process, name))
        return found is None and self.store.truth(name) is None


async def _in_thread(loop: VirtualLoop, call: Any) -> None:
    await loop.run_in_executor(None, call)


def run(seed: int) -> str | None:
    """Runs the history of a seed."""
    history = PinHistory(seed)
    try:
        history.run()
    except InvariantViolated as broken:
        return f"seed {seed}: {broken.violation}\n\n{history.world.story.about(set())}"
    return None
