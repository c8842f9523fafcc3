"""A history of compactions: leaders delete superseded chunks, beside retention, pinned readers and more compactions.

Chunks, file lists and merged files are real Parquet and JSON. Compactions, the deletion of superseded chunks, retention
and orphaned files are the project's own code, each in processes that are killed or paused between any two calls.
``run(seed)`` returns None, or a text that says what went wrong.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, MutableMapping
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from random import Random
from traceback import format_exc
from typing import Any, cast
from unittest.mock import patch

from smq_core.errors import CorruptChunk, DataLost, PinExpired, SmqError
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import Durability, Layout, Phase, Replica, Segment, Topic, TopicSpec
from smq_core.reading import pins as reader_pins
from smq_core.reconcile.retention import plan_retention
from smq_core.sealing.chain_sealer import ReadChunk, UnsealedTail, WriteSeal, seal
from smq_operator.cleanup import superseded_chunks
from smq_operator.cleanup.filer_clock import FilerClock
from smq_operator.cleanup.orphaned_files import collect_orphaned_files
from smq_operator.cleanup.retention import age_of_removal, delete_files, read_consistent, remove_expired
from smq_operator.cleanup.superseded_chunks import SupersededChunksCollector
from smq_operator.platform_port import DesiredTopic
from smq_operator.reconcile.topics.index_copy import IndexCopy
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.runtime.cleanup_settings import CleanupSettings
from smq_operator.runtime.problems import LeaderProblems
from smq_operator.runtime.store_pool import StorePool
from smq_storage.catalog import layouts, paths, sealed_index
from smq_storage.catalog.topics import put_current, put_topic
from smq_storage.chunks.chain import ChunkChain
from smq_storage.chunks.schemas import chunk_schema
from smq_storage.compaction import merging
from smq_storage.compaction.topic_compaction import compact_topic, merge_here
from smq_storage.object_store.conditional_writes import RetryPolicy, WriteConflict
from smq_storage.object_store.store import Store
from smq_storage.tables.file_lists import write_file_list
from smq_storage.tables.pinned_reads import PinnedReads
from smq_storage.tables.range_reader import read_range
from smq_storage.tables.segment_files import StoredSegment
from support.data.sealed_topic import RANGE, sealed_entry, segment_name
from support.data.small_chunks import NAME, ROWS, UID
from support.data.stored_segment import COLUMNS, file_list_of_chain, rows_of
from support.sim.checks.protocol_checker import InvariantViolated
from support.sim.checks.superseded_checker import SupersededChecker
from support.sim.engine.log_capture import logs_to
from support.sim.engine.network import SimulatedNetwork
from support.sim.engine.virtual_asyncio import VirtualLoop
from support.sim.engine.virtual_threads import VirtualThread
from support.sim.engine.world import MS, SECOND, Process, World
from support.sim.filer.file_store import FileStore, TrueFiles
from support.sim.filer.object_store import SimulatedStore

KEPT_SEGMENTS = 6
LIFETIME = 8 * SECOND
GRACE = 10 * SECOND
# In place of the minute, so that some pins are younger. It is longer than any answer is out of date.
CLOCK_MARGIN = 4 * SECOND
CLEANUP = CleanupSettings(
    retention_interval_us=SECOND,
    removed_files_grace_us=12 * SECOND,
    max_pin_age_us=20 * SECOND,
    orphan_grace_us=12 * SECOND,
    superseded_files_grace_us=GRACE,
)
HORIZON = 45 * SECOND
RECOVERY_TIME = CLEANUP.max_pin_age_us + CLEANUP.orphan_grace_us + 20 * SECOND
# The sizes of merged files. A chunk has about 3,000 bytes.
TARGETS = (8_000, 20_000, 1 << 25)
# The writes of a file after which half of the processes that write are killed or paused.
INTERRUPTED = 0.06
HOLDER = Replica("b", "i", "b:1")


class CallerThread:
    """Stands in for a pool of threads: each call runs in the thread of its caller."""

    def __init__(self, *args: object, **options: object) -> None:
        pass

    def __enter__(self) -> CallerThread:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, call: Callable[..., Any], *args: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(call(*args))
        return done


class SupersededHistory:
    def __init__(self, seed: int) -> None:
        self.world = world = World(seed)
        self.dice = Random(f"superseded {seed}")
        self.store = SimulatedStore(world, SimulatedNetwork(world))
        self.files = cast(Store, TrueFiles(self.store))
        self.topic = Topic(
            NAME,
            UID,
            TopicSpec(partitions=16, schema=COLUMNS, key="text", retention_bytes=KEPT_SEGMENTS * ROWS),
        )
        self.checker = SupersededChecker(world, self.store, GRACE)
        self.loops: list[VirtualLoop] = []
        self.hosted: dict[str, Process] = {}
        """The segments whose seal a broker has not reported."""
        self.writers: list[Process] = []
        """Leaders and compactions."""
        self.completed = self.expired = self.planned_again = self.compacted = self.numbers = 0
        self._ended = False
        self.wrong_clocks = self.dice.random() < 0.3
        """Whether leaders start on machines with wrong clocks, which only delays a deletion."""
        self.slow = self.dice.choice([200 * MS, 800 * MS, 3 * SECOND])
        put_current(self.files, NAME, UID, None)
        put_topic(self.files, self.topic)
        layouts.put_layout(self.files, self._layout(0), None)
        self._set_faults(self.dice.choice([0.0, 0.02, 0.08]))
        for number in range(self.dice.choice([1, 2, 2])):
            self._start_leader(f"leader-{number}")
        self.store.watchers.append(self._interrupt)
        world.after(SECOND, self._seal)
        world.after(5 * SECOND, self._start_compaction)
        world.after(2 * SECOND, self._start_reader)

    def log(self, leader: str, event: MutableMapping[str, Any]) -> None:
        self.world.note(leader, "", " ".join(f"{key}={value}" for key, value in event.items() if key != "exc_info"))

    def run(self) -> None:
        """Raises InvariantViolated."""
        ids = Random(self.world.seed)
        with ExitStack() as patched:
            patched.enter_context(logs_to(self))
            for where, name, value in (
                (merging, "ThreadPoolExecutor", CallerThread),
                (superseded_chunks, "RETRY_AFTER_US", 5 * SECOND),
                (reader_pins, "CLOCK_MARGIN", CLOCK_MARGIN),
                (uuid, "uuid4", lambda: uuid.UUID(int=ids.getrandbits(128))),
            ):
                patched.enter_context(patch.object(where, name, value))
            try:
                self.world.run_until(HORIZON)
                self._ended = True
                self._set_faults(0.0)
                self.world.run_until(HORIZON + RECOVERY_TIME)
                self.checker.check_end(HORIZON, in_time=not self.wrong_clocks)
            finally:
                for loop in self.loops:
                    loop.abandon()

    def _set_faults(self, share: float) -> None:
        faults = self.store.faults
        faults.lost_answer = faults.late = faults.refused = faults.false_conflict = faults.failed_get = share / 4
        faults.stale_get = share * 2

    # ---- processes

    def _start(self, host: str, work: Callable[[FileStore, Process], None], **options: bool) -> Process:
        """Runs blocking calls as a process."""
        process, loop = self._process(host)

        def call() -> None:
            work(FileStore(self.store, process, **options), process)

        async def run() -> None:
            await self._guarded(process, loop.run_in_executor(None, call))

        process.start(_steps(loop.start(run())))
        return process

    def _process(self, host: str) -> tuple[Process, VirtualLoop]:
        process = Process(self.world, host, self.world.unique(f"{host}."))
        loop = VirtualLoop(process)
        self.loops.append(loop)
        return process, loop

    async def _guarded(self, process: Process, work: Any) -> None:
        """What is no error of the project ends the history."""
        try:
            await work
        except SmqError as error:
            self.world.note(process.name, "", f"ends: {error.message}")
        except InvariantViolated:
            pass  # the checker has it
        except Exception as error:
            what = f"unexpected: {error!r} {format_exc()}"
            self.world.after(0, lambda: self.checker.broken(process.name, what))

    def _disturb(self, process: Process, seconds: int) -> None:
        """Kills or pauses some processes between any two calls."""
        share, at = self.dice.random(), self.dice.randint(0, seconds * SECOND)
        if share < 0.2:
            self.world.after(at, process.kill)
        elif share < 0.6:
            self.world.after(at, process.pause)
            self.world.after(at + self.dice.randint(SECOND, 25 * SECOND), process.resume)

    def _interrupt(self, path: str, value: Any) -> None:
        """Kills or pauses those who write, often right after a write to the files of a segment."""
        written = path.endswith(".parquet") or paths.file_list_version(path) is not None
        if not written or not self.numbers or self._ended or self.dice.random() > INTERRUPTED:
            return
        for process in self.writers:
            if process.alive and not process.paused and self.dice.random() < 0.5:
                if self.dice.random() < 0.3 and process.host == "compaction":
                    process.kill()
                else:
                    process.pause()
                    self.world.after(self.dice.randint(SECOND, 25 * SECOND), process.resume)

    # ---- the log

    def _layout(self, number: int) -> Layout:
        before = (segment_name(number - 1),) if number else ()
        living = Segment(
            name=segment_name(number),
            number=number,
            range=RANGE,
            phase=Phase.OPEN,
            durability=Durability.STORED,
            replicas=(HOLDER,),
            predecessors=before,
        )
        return Layout(
            topic=NAME,
            uid=UID,
            partitions=16,
            version=1,
            next_number=number + 1,
            segments=(living,),
            writer=f"w{number}",
        )

    def _seal(self) -> None:
        """A segment with small chunks is sealed, and continued by the next one."""
        number, name = self.numbers, segment_name(self.numbers)
        end = ROWS * self.dice.randint(2, 8)
        chain = ChunkChain(self.files, NAME, UID, name)
        for first in range(0, end, ROWS):
            info = ChunkInfo(segment=name, first=first, rows=ROWS, writer="w", nonce=f"n{first}")
            chain.put(info, [(rows_of(first, ROWS), 1)], chunk_schema(COLUMNS), key="text")
        chain.put_seal(ChunkInfo(segment=name, first=end, rows=0, writer="w", nonce="seal", sealed=True))
        made = file_list_of_chain(chain, "text")
        assert made is not None
        file_list = write_file_list(self.files, NAME, UID, made)
        sealed_index.append(self.files, NAME, UID, [sealed_entry(number, end, file_list=file_list, bytes=ROWS)])
        self.numbers += 1
        found = layouts.read_layout(self.files, NAME, UID)
        assert found is not None
        layouts.put_layout(self.files, self._layout(self.numbers), found[1])
        if self.dice.random() < 0.3:
            self._start_late_sealer(name)
        if not self._ended:
            self.world.after(self.dice.randint(2 * SECOND, 6 * SECOND), self._seal)

    def _start_late_sealer(self, name: str) -> None:
        """A broker that does not know yet that the segment is sealed walks its chain very slowly."""
        dice = Random(f"{self.world.seed} {name}")

        def walk(store: FileStore, process: Process) -> None:
            chain = ChunkChain(cast(Store, store), NAME, UID, name)
            steps, reply = seal(name, UnsealedTail()), None
            try:
                while True:
                    step = steps.send(reply)
                    VirtualThread.current().wait(dice.randint(0, 6 * SECOND))
                    if isinstance(step, ReadChunk):
                        reply = chain.info(step.first)
                    elif isinstance(step, WriteSeal):
                        sealed = chain.put_seal(step.info(process.name, "seal"), RetryPolicy(3.0))
                        reply = not isinstance(sealed, WriteConflict)
            except StopIteration as done:
                self.checker.check_seal(name, done.value.end)
            finally:
                del self.hosted[name]

        self.hosted[name] = self._start("broker", walk)

    # ---- compactions

    def _start_compaction(self) -> None:
        target = self.dice.choice(TARGETS)

        def work(store: FileStore, process: Process) -> None:
            files = cast(Store, store)
            for done in compact_topic(files, NAME, UID, "text", merge_here(files), target, RetryPolicy(3.0)):
                self.compacted += done.switched
                self.world.note(process.name, done.segment, f"merges {done.merged_files} files: {done.switched}")

        process = self._start("compaction", work)
        self.writers.append(process)
        self._disturb(process, 1)
        if not self._ended:
            self.world.after(self.dice.randint(3 * SECOND, 10 * SECOND), self._start_compaction)

    # ---- leaders

    def _start_leader(self, host: str) -> None:
        process, loop = self._process(host)
        self.writers.append(process)
        skew = self.dice.choice([0, -500 * SECOND, 500 * SECOND]) if self.wrong_clocks else 0
        process.start(_steps(loop.start(self._guarded(process, self._lead(process, skew)))))
        self.world.after(self.dice.randint(5 * SECOND, 40 * SECOND), lambda: self._replace_leader(process))

    def _replace_leader(self, process: Process) -> None:
        """Kills it between any two calls, or pauses it; another one begins in any case."""
        if self._ended:
            return
        if self.dice.random() < 0.4:
            process.kill()
        else:
            process.pause()
            self.world.after(self.dice.randint(SECOND, 25 * SECOND), process.resume)
        self._start_leader(process.host)

    async def _lead(self, process: Process, skew: int) -> None:
        store = FileStore(self.store, process)
        pool = StorePool(cast(Store, store), None, RetryPolicy(3.0))

        def now() -> int:
            return self.world.now + skew

        clock = FilerClock(pool, now)
        collector = SupersededChunksCollector(
            store=pool,
            filer_clock=clock,
            clock=now,
            settings=CLEANUP,
            problems=LeaderProblems(),
            is_held=lambda store, topic, retry_policy: False,
        )
        managed = ManagedTopic(DesiredTopic(name=NAME, spec=self.topic.spec), self.topic, index=IndexCopy(is_read=True))
        dice = Random(f"{self.world.seed} {process.name}")
        while True:
            await asyncio.sleep(dice.uniform(1.0, 3.0))
            try:
                managed.index.merge(await pool.run(sealed_index.load, NAME, UID))
                started = {(HOLDER.incarnation, segment_name(self.numbers))}
                if plan_retention(self.topic.spec, list(managed.index.sealed.values()), [], now()).removals:
                    clocks, known = await clock.read(), await pool.run(read_consistent, self.topic)
                    await pool.run(remove_expired, self.topic, known, [], started, clocks, pool.retry_policy)
                await collector.collect(managed, self.topic, self._hosted)
                clocks = await clock.read()
                removed = [it for it in managed.index.removed_segments.values() if it.files]
                if any(age_of_removal(it, clocks) >= CLEANUP.removed_files_grace_us for it in removed):
                    await pool.run(delete_files, self.topic, clocks, CLEANUP, pool.retry_policy)
                if dice.random() < 0.2:
                    before = datetime.fromtimestamp((clocks.earliest - CLEANUP.orphan_grace_us) / SECOND, UTC)
                    await pool.run(collect_orphaned_files, self.topic, before)
            except SmqError as error:
                self.world.note(process.name, "", f"collection is deferred: {error.message}")

    def _hosted(self) -> set[str]:
        return {name for name, process in self.hosted.items() if process.alive}

    # ---- readers

    def _start_reader(self) -> None:
        pinned = self.dice.random() < 0.7
        process = self._start("reader", self._read_pinned if pinned else self._read_freely, sees_new_files=True)
        self._disturb(process, 15)
        if not self._ended:
            self.world.after(self.dice.randint(SECOND, 5 * SECOND), self._start_reader)

    def _read_pinned(self, store: FileStore, process: Process) -> None:
        dice = Random(f"{self.world.seed} {process.name}")
        ids = (f"{process.name}-{n}" for n in range(10**9))
        reads = PinnedReads(cast(Store, store), lambda: next(ids), lambda: self.world.now, RetryPolicy(3.0))
        with reads.begin(NAME, UID, process.name, LIFETIME) as pinned:
            entries = pinned.files.index.entries
            self.checker.planned(pinned.pin_id, entries)
            try:
                for entry in entries:
                    segment, at = StoredSegment.of(NAME, UID, entry), dice.randrange(entry.end)
                    for first, table in pinned.read_range(segment, at, entry.end, ["number"]):
                        if first == at:
                            at = self.checker.read(process.name, entry.name, at, table["number"].to_pylist())
                        VirtualThread.current().wait(dice.randint(0, self.slow))
                    if at != entry.end:
                        self.checker.broken(entry.name, f"{process.name} reads up to {at}, not {entry.end}")
            except PinExpired:
                self.expired += 1
                return
            except (DataLost, CorruptChunk) as error:
                if not self.checker.damaged:
                    self.checker.broken(error.path, f"{process.name} misses a file: {error.message}")
            finally:
                self.checker.released(pinned.pin_id)
        self.completed += 1

    def _read_freely(self, store: FileStore, process: Process) -> None:
        """Without a pin, and at times without a file list: what is gone is planned again, and no row is another."""
        dice = Random(f"{self.world.seed} {process.name}")
        for _ in range(8):
            entries = sealed_index.read(cast(Store, store), NAME, UID)
            if not entries:
                return
            entry = dice.choice(entries)
            segment, at = StoredSegment.of(NAME, UID, entry), dice.randrange(entry.end)
            if dice.random() < 0.4:
                segment = replace(segment, file_list="")
            try:
                for first, table in read_range(cast(Store, store), segment, at, entry.end, ["number"]):
                    if first == at:
                        at = self.checker.read(process.name, entry.name, at, table["number"].to_pylist())
                    VirtualThread.current().wait(dice.randint(0, self.slow))
            except (DataLost, CorruptChunk):
                self.planned_again += 1
                continue
            if at != entry.end:
                self.checker.broken(entry.name, f"{process.name} reads up to {at}, not {entry.end}")
            self.completed += 1


def _steps(awaited: Any) -> Any:
    yield awaited


def run(seed: int) -> str | None:
    """Runs the history of a seed."""
    history = SupersededHistory(seed)
    try:
        history.run()
    except InvariantViolated as broken:
        return f"seed {seed}: {broken.violation}\n\n{history.world.story.about(set())}"
    return None
