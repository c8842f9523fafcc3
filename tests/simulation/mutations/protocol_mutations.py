"""Mutations of the protocol, one rule each, which the simulation must detect.

Each mutation is a function that takes pytest's ``monkeypatch``. Its docstring is the rule that it breaks.
``MUTATIONS`` maps names to them; histories with many changes of leaders detect those in ``LEADERS``.

A broker of another incarnation opens nothing in any case, because its opener compares the replicas. A chunk that is
retried under another nonce only ends its segment early. ``tests/mutations/broker`` breaks these rules.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from simulation.mutations.mutation_table import MutationTable, Patch
from smq_broker.segments.hosted_segment import segment_key
from smq_broker.segments.sealing import SegmentSealer
from smq_core.errors import OffsetMismatch, SequenceGap
from smq_core.model.chunk_info import ChunkInfo, ProducerState, SealOutcome
from smq_core.model.entities import Durability, Liveness
from smq_core.producing.producer_machine import ProducerMachine
from smq_core.producing.send_queue import SendQueue, SendQueueState
from smq_core.reading import consumer_group
from smq_core.reading.segment_dag import ReadProgress
from smq_core.reconcile import topic_reconciler
from smq_core.replica.log_entries import Entry
from smq_core.replica.pending_acks import PendingAcks
from smq_core.replica.segment_replica import ReplicaState, SegmentReplica
from smq_core.sealing import chain_sealer
from smq_core.sealing.seal_coordinator import SealCoordinator
from smq_storage.object_store import conditional_writes
from smq_storage.object_store.conditional_writes import WriteConflict, WriteSucceeded
from smq_storage.object_store.results import EtagMismatch, ObjectExists
from support.sim.brokers.broker import SimulatedBroker
from support.sim.brokers.replication import ReplicaServer
from support.sim.clients import segment_reader
from support.sim.engine.world import MS
from support.sim.filer import conditional_puts
from support.sim.filer.blocking_store import BlockingChain
from support.sim.filer.chunk_chain import LAYOUT, UID
from support.sim.filer.object_store import ConditionFailed, SimulatedStore
from support.sim.leaders import group_host

NOTHING = ChunkInfo(segment="", first=0, rows=0, writer="", nonce="")

MUTATIONS, LEADERS = MutationTable(), MutationTable()
mutation = MUTATIONS.add


# ---- acks and replication


@mutation
def ack_before_the_follower_has_it(patch: Patch) -> None:
    """The watermark is the smallest end among the replicas, not the primary's own."""

    def advance(self: SegmentReplica) -> None:
        if self.state is ReplicaState.OPEN:
            stored = self.config.durability is Durability.STORED
            self.watermark = max(self.watermark, self.chain_end if stored else self.end)

    patch.setattr(SegmentReplica, "_advance_watermark", advance)


@mutation
def stored_acks_before_the_chunk_is_written(patch: Patch) -> None:
    """For ``Stored`` the watermark is the chain's end, not the end of what was sent to the store."""
    original = SegmentReplica._advance_watermark

    def advance(self: SegmentReplica) -> None:
        original(self)
        if self.state is ReplicaState.OPEN and self._chunk_in_flight is not None:
            self.watermark = max(self.watermark, self._chunk_in_flight.end)

    patch.setattr(SegmentReplica, "_advance_watermark", advance)


@mutation
def ack_repeats_before_the_watermark_covers_them(patch: Patch) -> None:
    """A repeated batch is acked when the watermark covers it, not because it is in the log."""
    original = PendingAcks.add_repeat
    patch.setattr(PendingAcks, "add_repeat", lambda self, end, ack: original(self, 0, ack))


@mutation
def accept_a_sequence_gap(patch: Patch) -> None:
    """A batch after a gap in the sequence is refused, because the missing ones would count as repeats later."""
    original = SegmentReplica.append

    def append(self: SegmentReplica, stream: object, batch: Any, now: int) -> Entry | None:
        try:
            return original(self, stream, batch, now)
        except SequenceGap:
            id_ = batch.id
            known = {
                id_.producer: ProducerState(
                    epoch=id_.epoch, last_sequence=id_.sequence - 1, recent=(), instance=id_.instance, appended=now
                )
            }
            self.sessions.producers.inherit(known)
            return append(self, stream, batch, now)

    patch.setattr(SegmentReplica, "append", append)


@mutation
def replication_beyond_the_own_end(patch: Patch) -> None:
    """A follower accepts a batch only at its own end."""
    original = SegmentReplica.replicate

    def replicate(self: SegmentReplica, message: Any) -> int:
        try:
            return original(self, message)
        except OffsetMismatch:
            self.end = message.base_offset
            return original(self, message)

    patch.setattr(SegmentReplica, "replicate", replicate)


@mutation
def trim_the_follower_before_the_chunk_is_sure(patch: Patch) -> None:
    """A follower drops entries that are in the chain, not those that are acked."""
    original = SegmentReplica.replicate

    def replicate(self: SegmentReplica, message: Any) -> int:
        end = original(self, message)
        self._chain_state.chain_extended(self._trim(self.watermark))
        return end

    patch.setattr(SegmentReplica, "replicate", replicate)


@mutation
def one_memory_budget_for_all(patch: Patch) -> None:
    """Replication never waits for producers' memory: two brokers that replicate to each other would deadlock."""
    original = ReplicaServer.on_message

    def on_message(self: ReplicaServer, message: Any) -> None:
        broker = self.segment.broker
        used = sum(h.machine.tail_bytes for h in broker.hosted_segments.values())
        if used > broker.settings.primary_budget and getattr(message, "entries", ()):
            broker.process.after(200 * MS, lambda: on_message(self, message))
        else:
            original(self, message)

    patch.setattr(ReplicaServer, "on_message", on_message)


# ---- identity


@mutation
def open_a_segment_after_promising_not_to(patch: Patch) -> None:
    """An incarnation never opens a segment that it has refused or hosted before."""
    original = SimulatedBroker.on_open

    def on_open(self: SimulatedBroker, segment: Any, incarnation: str) -> Any:
        registry, key = self.shells.registry, segment_key(UID, segment.name)
        held = registry.hosted(UID, segment.name)
        if held is None or held.machine.state is ReplicaState.SEALED:
            registry._used_keys.discard(key)
            registry._hosted.pop(key, None)
            self.hosted_segments.pop(segment.name, None)
        return (yield from original(self, segment, incarnation))

    patch.setattr(SimulatedBroker, "on_open", on_open)


# ---- the store


@mutation
def trust_an_error_of_a_put(patch: Patch) -> None:
    """After any error the object is read back, because the PUT may have been applied."""

    def write(store: Any, path: str, write: Any, before: Any, *more: Any) -> Any:
        try:
            return WriteSucceeded(write())
        except (ObjectExists, EtagMismatch):
            found = store.store.truth(path)
            return WriteConflict(found.info if found is not None else NOTHING, "")

    def put_conditionally(
        store: SimulatedStore, caller: Any, path: str, value: Any, etag: Any, is_mine: Any, timeout: int = 0
    ) -> Any:
        try:
            return conditional_puts.PutApplied((yield store.put(caller, path, value, etag)))
        except ConditionFailed:
            return conditional_puts.PutConflict(store.truth(path))

    patch.setattr(conditional_puts, "put_conditionally", put_conditionally)
    patch.setattr(conditional_writes, "_write_until_decided", write)


@mutation
def take_a_conflict_for_own_success(patch: Patch) -> None:
    """ "Already exists" does not show who wrote the object."""
    original = conditional_puts.put_conditionally
    original_write = conditional_writes._write_until_decided

    def put_conditionally(
        store: SimulatedStore, caller: Any, path: str, value: Any, etag: Any, is_mine: Any, timeout: int = 0
    ) -> Any:
        result = yield from original(store, caller, path, value, etag, is_mine)
        return result if etag is not None or path == LAYOUT else conditional_puts.PutApplied("")

    def write(store: Any, path: str, write: Any, before: Any, *more: Any) -> Any:
        result = original_write(store, path, write, before, *more)
        return result if before is not None else WriteSucceeded("")

    patch.setattr(conditional_puts, "put_conditionally", put_conditionally)
    patch.setattr(conditional_writes, "_write_until_decided", write)


@mutation
def forget_producers_in_chunks(patch: Patch) -> None:
    """Every chunk has the log's producer state, from which another sealer continues."""
    original = BlockingChain._create

    def create(self: BlockingChain, stored: Any, retry_policy: Any) -> Any:
        if not stored.info.sealed:
            stored = replace(stored, info=replace(stored.info, producers={}))
        return original(self, stored, retry_policy)

    patch.setattr(BlockingChain, "_create", create)


@mutation
def put_the_layout_without_its_etag(patch: Patch) -> None:
    """The layout's etag decides between two leaders."""
    original = SimulatedStore._apply

    def apply(self: SimulatedStore, path: str, value: Any, etag: str | None) -> str | None:
        if path == LAYOUT and path in self.things:
            etag = self.things[path].versions[-1][2]
        return original(self, path, value, etag)

    patch.setattr(SimulatedStore, "_apply", apply)


# ---- sealing


@mutation
def seal_without_a_fence(patch: Patch) -> None:
    """After a seal request a replica appends nothing."""
    patch.setattr(SegmentReplica, "fence", lambda self: None)


@mutation
def report_an_outcome_before_the_seal_chunk(patch: Patch) -> None:
    """No process reports the delivery state of pending batches before the seal chunk exists."""
    original = SegmentSealer._run

    def run(self: SegmentSealer, hosted: Any, run: Any) -> None:
        machine = hosted.machine
        outcome = SealOutcome(segment=hosted.name, end=machine.end, producers=machine.sessions.producers.snapshot())
        for stream in list(hosted.streams):
            stream.stream.down(("sealed", outcome))
        original(self, hosted, run)

    patch.setattr(SegmentSealer, "_run", run)


@mutation
def seal_from_the_filer_while_a_replica_is_only_unreachable(patch: Patch) -> None:
    """Only a termination proof or a manual request allows a seal from the filer alone."""

    def may_hold_all(self: SealCoordinator, incarnation: str, liveness: Any) -> bool:
        return not self._attempts[incarnation].holds_nothing and liveness(incarnation) is Liveness.ALIVE

    patch.setattr(SealCoordinator, "_may_hold_all", may_hold_all)


@mutation
def a_sealer_adds_nothing(patch: Patch) -> None:
    """A sealer writes its entries beyond the chain's end before it seals the chain."""
    patch.setattr(chain_sealer, "_entries_from", lambda entries, offset, max_bytes: ())


@mutation
def open_before_the_predecessors_are_sealed(patch: Patch) -> None:
    """A successor accepts nothing until it has read every predecessor's seal chunk."""
    original = SegmentReplica.__post_init__

    def post_init(self: SegmentReplica) -> None:
        original(self)
        self.state = ReplicaState.OPEN

    patch.setattr(SegmentReplica, "__post_init__", post_init)


# ---- producers


@mutation
def send_onward_before_the_outcome_is_known(patch: Patch) -> None:
    """Batches in flight go to a successor only when the segment's outcome does not contain them."""
    patch.setattr(
        ProducerMachine,
        "_may_leave",
        lambda self, segment: self.send_queues.send_queue(segment).state is not SendQueueState.STREAMING,
    )


@mutation
def a_reopened_stream_sends_only_what_is_new(patch: Patch) -> None:
    """Batches in flight are sent again after a stream broke, because they may not have arrived."""
    original = SendQueue.opened

    def opened(self: SendQueue, last_sequence: int | None, **log: int) -> Any:
        unknown = original(self, last_sequence, **log)
        self.to_resend = 0
        return unknown

    patch.setattr(SendQueue, "opened", opened)


# ---- readers and groups


@mutation
def a_reader_opens_successors_at_once(patch: Patch) -> None:
    """A segment is read only when its predecessors have been read to their ends."""
    patch.setattr(ReadProgress, "readable", lambda self: [name for name in self.nodes if not self.is_read(name)])


@mutation
def a_group_counts_commits_that_are_not_written(patch: Patch) -> None:
    """A segment is assigned when its predecessors' ends are *committed* in the store, not in a leader's memory."""
    original = consumer_group.Group.commit

    def commit(self: consumer_group.Group, member: str, generation: int, positions: Any, *more: Any) -> bool:
        changed = original(self, member, generation, positions, *more)
        for segment, offset in positions.items():
            self.reader.advance(segment, offset)
        return changed

    patch.setattr(consumer_group.Group, "commit", commit)


@mutation
def a_new_leader_goes_on_with_an_old_generation(patch: Patch) -> None:
    """Each leader that loads a group begins a new generation."""
    patch.setattr(group_host, "GENERATIONS_PER_LEADER", 1 << 60)
    original = group_host.GroupHost._loaded

    def loaded(self: Any, name: str) -> Any:
        new = name not in self.groups
        it = yield from original(self, name)
        if new:
            it.group.generation %= 1 << 60
        return it

    patch.setattr(group_host.GroupHost, "_loaded", loaded)


@LEADERS.add
def believe_an_index_that_is_behind(patch: Patch) -> None:
    """A segment that is missing from a stale index page is not removed. The page is read again."""
    patch.setattr(segment_reader, "index_is_stale", lambda layout, sealed, removed: False)
    patch.setattr(group_host, "index_is_stale", lambda layout, sealed, removed: False)


@LEADERS.add
def a_leader_never_reads_the_layout_again(patch: Patch) -> None:
    """A former leader's PUT may be applied after the new one has read the layout."""
    patch.setattr(topic_reconciler, "RESYNC_AFTER", 1 << 62)
