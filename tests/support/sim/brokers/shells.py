"""What a simulated broker has of the product's shells, and what is replaced in them: rows and Parquet files.

Chunks and replicated messages stay objects, so their encoders are replaced. Everything else is the product's.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from prometheus_client import CollectorRegistry

from smq_broker.file_lists import recorded_files
from smq_broker.file_lists.writer import FileListWriter
from smq_broker.memory.accounting import MemoryAccounting
from smq_broker.memory.budgets import PrimaryBudget
from smq_broker.recovery import recovered_logs, recovered_segment
from smq_broker.recovery.recovered_logs import RecoveredLogs
from smq_broker.runtime.broker_metrics import BrokerMetrics
from smq_broker.runtime.pauses import PauseCounter
from smq_broker.runtime.threads import ThreadSupervisor
from smq_broker.segments import flush_scheduling, flusher, journaling, opening, predecessors, sealing
from smq_broker.segments.flusher import Flusher
from smq_broker.segments.hosted_segment import HostedSegment
from smq_broker.segments.opening import SegmentOpener
from smq_broker.segments.registry import SegmentRegistry
from smq_broker.segments.seal_watcher import SealWatcher
from smq_broker.segments.sealing import SegmentSealer
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Replica
from smq_operator.brokers import sealing as leader_sealing
from smq_storage.catalog import paths
from support.sim.brokers.journal import SimulatedFormer
from support.sim.brokers.replication import ReplicaLink
from support.sim.engine.log_capture import logs_to
from support.sim.engine.virtual_threads import VirtualThread
from support.sim.engine.world import MS, SECOND
from support.sim.filer.blocking_store import BlockingChain, BlockingStore
from support.sim.filer.file_lists import file_entry

if TYPE_CHECKING:
    from support.sim.brokers.broker import SimulatedBroker
    from support.sim.histories.protocol import History


# In place of the rows of a journal's record, which has its entries.
_NO_ROWS = SimpleNamespace(is_small=False)


class SimulatedMemory(MemoryAccounting):
    """The budgets of the history: one of some batches for all primaries, and one credit for each follower."""

    def __init__(self, primary: int, credit: int) -> None:
        super().__init__(1 << 30)
        self._primary = PrimaryBudget(primary, primary)
        self._credit = credit

    def grant(self, segment: str) -> int:
        return self._credit


class SimulatedClock:
    """A broker's clock, which may jump."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self._broker = broker

    def now(self) -> int:
        return self._broker.clock()

    def follow(self) -> None:
        """It always does."""


class SimulatedOutcomes(predecessors.StoredOutcomes):
    """Shows the checker which predecessors a segment finds removed. The name of its thread has that of the segment."""

    def read_removed(self, segment: str) -> SealOutcome | None:
        outcome = super().read_removed(segment)
        thread = VirtualThread.current()
        if outcome is not None:
            waiting = thread.name.removeprefix("open-")
            thread.process.node.checker.producers.found_removed(waiting, segment)
        return outcome


class BrokerStore(BlockingStore):
    """A broker's filer. It may take long to take file lists."""

    def __init__(self, broker: SimulatedBroker) -> None:
        super().__init__(broker.store, broker.process)
        self._scenario = broker.history.file_lists

    def put_new(self, path: str, data: Any) -> str:
        if paths.file_list_segment(path) is not None:
            longest = 2 * SECOND if self._scenario.slow_writers else 20 * MS
            VirtualThread.current().wait(self._scenario.dice.randint(0, longest))
        return super().put_new(path, data)


class BrokerShells:
    """The parts of one broker. Make them in the broker's world."""

    def __init__(self, broker: SimulatedBroker) -> None:
        settings, world = broker.settings, broker.world
        metrics = BrokerMetrics(CollectorRegistry())
        store: Any = BrokerStore(broker)
        clock: Any = SimulatedClock(broker)

        def spawn(run: Callable[[], None], name: str) -> Any:
            return VirtualThread(broker.process, run, name)

        self.threads = ThreadSupervisor(metrics, spawn=spawn, clock=world.runtime.monotonic)
        self.memory = SimulatedMemory(settings.primary_budget, settings.credit)
        self.registry = SegmentRegistry(broker.incarnation, on_drain=lambda: None)
        self.file_lists = FileListWriter(store, metrics, self.threads)
        self.sealer = SegmentSealer(
            registry=self.registry,
            store=store,
            broker_metrics=metrics,
            threads=self.threads,
            file_lists=self.file_lists,
        )
        with patch.object(flush_scheduling, "PRESSURE_FILES", ()):
            self.flusher = Flusher(
                hosted=self.registry.all,
                memory=self.memory,
                broker_metrics=metrics,
                threads=self.threads,
                on_chunk_taken=self.sealer.follow_seal,
            )
        pauses = PauseCounter(world.runtime.monotonic)
        formers: Any = _formers(broker)
        self.recovered = RecoveredLogs(formers, store, clock, on_change=lambda: None)
        self.watcher = SealWatcher(
            lambda: [*self.registry.all(), *self.recovered.unsealed()],
            pauses,
            self.threads,
            on_seal_found=self.sealer.record_seal,
        )

        def link(hosted: HostedSegment, *, follower: Replica, on_fenced: Any, on_death: Any) -> ReplicaLink:
            return ReplicaLink(broker, hosted, follower, on_fenced)

        journal: Any = broker.disk
        self.opener = SegmentOpener(
            registry=self.registry,
            store=store,
            memory=self.memory,
            clock=clock,
            pauses=pauses,
            flusher=self.flusher,
            sealer=self.sealer,
            connect_follower=link,
            threads=self.threads,
            producer_limits=settings.limits,
            on_change=broker.state_changed,
            journal=journal,
        )
        self.flusher.start()
        self.watcher.start()
        self.recovered.start(self.threads)
        if broker.history.file_lists.drawn and not broker.history.file_lists.old_brokers:
            self.file_lists.start()


def _formers(broker: SimulatedBroker) -> list[SimulatedFormer]:
    """What former processes left in the journal. From now on it is this process's, too."""
    disk, dice = broker.disk, broker.history.journals.dice
    if disk is None:
        return []
    found = {name: list(held.values()) for name, held in disk.former().items()}
    formers = [SimulatedFormer(disk, name, [it.recover(dice) for it in held]) for name, held in found.items()]
    disk.begin(broker.incarnation)
    return formers


@contextmanager
def broker_shells(history: History) -> Iterator[None]:
    """Replaces what encodes rows and files, and random ids. Log lines go to the story."""
    ids = Random(history.world.seed)
    with ExitStack() as stack:
        for module in (opening, sealing, predecessors, recovered_logs, leader_sealing):
            stack.enter_context(patch.object(module, "ChunkChain", BlockingChain))
        for module in (flusher, sealing):
            stack.enter_context(patch.object(module, "batches_with_append_times", tuple))
        stack.enter_context(patch.object(journaling, "encode_message", lambda message, empty: (message, None)))
        stack.enter_context(patch.object(recovered_logs, "segment_folder", lambda former, uid, name: (former, name)))
        stack.enter_context(patch.object(recovered_logs, "remove_folder", lambda log: log[0].remove_log(log[1])))
        stack.enter_context(patch.object(recovered_segment, "rows_of", lambda header, batch: _NO_ROWS))
        stack.enter_context(patch.object(recovered_segment, "decode_entries", lambda header, block: header.entries))
        stack.enter_context(patch.object(recorded_files, "file_entry", file_entry))
        stack.enter_context(patch.object(opening, "StoredOutcomes", SimulatedOutcomes))
        stack.enter_context(patch.object(uuid, "uuid4", lambda: uuid.UUID(int=ids.getrandbits(128))))
        stack.enter_context(logs_to(history))
        yield
