"""Mutations of producer identity: who may write as a producer, and when segments forget producers.

``MUTATIONS`` maps names to functions. Histories in which segments forget more producers detect those in ``FORGETTING``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from simulation.mutations.mutation_table import MutationTable, Patch
from smq_core.model.chunk_info import CONFLICTING_INSTANCES, ChunkInfo, Producers, ProducerState, SealOutcome
from smq_core.producing.producer_claim import claim_producer
from smq_core.producing.send_queue import Resolution, SendQueue
from smq_core.replica import producer_sessions
from smq_core.replica.log_entries import ReplicationMessage
from smq_core.replica.producer_map import ProducerMap
from smq_core.replica.producer_sessions import ProducerSessions
from smq_core.replica.segment_replica import SegmentReplica
from smq_core.sealing import chain_sealer
from support.sim.filer import claims
from support.sim.filer.object_store import ConditionFailed

MUTATIONS, FORGETTING = MutationTable(), MutationTable()
mutation = MUTATIONS.add


# ---- forgetting


@mutation
def forget_producers_with_open_streams(patch: Patch) -> None:
    """A producer is not forgotten while a stream of it is open."""

    original = ProducerSessions.opened

    def opened(self: ProducerSessions, producer: str, *stream: Any) -> None:
        original(self, producer, *stream)
        if self.producers.get(producer) is not None:
            self._closed.setdefault(producer, None)

    patch.setattr(ProducerSessions, "opened", opened)


@mutation
def forget_producers_above_the_watermark(patch: Patch) -> None:
    """A producer is not forgotten while its last batch is not durable."""
    original = ProducerSessions.take_forgotten
    patch.setattr(
        ProducerSessions,
        "take_forgotten",
        lambda self, appending, now, watermark: original(self, appending, now, 1 << 60),
    )


@mutation
def a_follower_keeps_forgotten_producers(patch: Patch) -> None:
    """Replicas forget the producers that a log entry names, so that all of them agree."""
    original = SegmentReplica.replicate

    def replicate(self: SegmentReplica, message: ReplicationMessage) -> int:
        kept = tuple(replace(entry, forgotten=()) for entry in message.entries)
        return original(self, replace(message, entries=kept))

    patch.setattr(SegmentReplica, "replicate", replicate)


@mutation
def a_forgotten_producer_sends_again(patch: Patch) -> None:
    """Batches that a segment may have forgotten are not sent again, because it may contain them."""
    original = SendQueue.opened

    def opened(self: SendQueue, last_sequence: int | None, *, end: int = 0, forgotten_upto: int = 0) -> Any:
        if last_sequence is None and forgotten_upto > self.log_start and self.in_flight:
            self.log_start = forgotten_upto
        return original(self, last_sequence, end=end, forgotten_upto=forgotten_upto)

    patch.setattr(SendQueue, "opened", opened)


@mutation
def a_forgotten_producer_sends_to_the_successors(patch: Patch) -> None:
    """Batches that a sealed segment may have forgotten do not go to its successors, because it may contain them."""
    original = SendQueue.resolve

    def resolve(self: SendQueue, outcome: SealOutcome | None, *who: Any) -> Resolution:
        return original(self, outcome and replace(outcome, forgotten_upto=0), *who)

    patch.setattr(SendQueue, "resolve", resolve)


@FORGETTING.add
def take_sequences_of_before_for_new_ones(patch: Patch) -> None:
    """A producer that a segment forgot restarts at sequence 0. The log may end before that, with other batches."""
    patch.setattr(SendQueue, "_is_outdated", lambda self, known: False)


# ---- one process writes


@mutation
def accept_any_instance(patch: Patch) -> None:
    """Two processes never write with one id and epoch."""
    original = ProducerSessions.require_current
    patch.setattr(
        ProducerSessions, "require_current", lambda self, producer, epoch, instance: original(self, producer, epoch, "")
    )


@mutation
def inherit_nothing(patch: Patch) -> None:
    """Successors know the epochs and instances of their predecessors' producers."""
    patch.setattr(producer_sessions, "inherited_producers", lambda predecessors: {})


@mutation
def inherit_one_of_two_instances(patch: Patch) -> None:
    """After a merge of segments to which two processes wrote in one epoch, neither may write."""
    original = producer_sessions.inherited_producers

    def inherited(predecessors: Iterable[Producers]) -> dict[str, ProducerState]:
        before = list(predecessors)
        found = original(before)
        for name, state in found.items():
            if state.instance == CONFLICTING_INSTANCES:
                one = next(p[name] for p in before if name in p and p[name].epoch == state.epoch)
                found[name] = replace(state, instance=one.instance)
        return found

    patch.setattr(producer_sessions, "inherited_producers", inherited)


@mutation
def do_not_read_the_predecessors_of_an_empty_segment(patch: Patch) -> None:
    """A segment that ended empty may not know what it would have inherited, so its successors read further back."""
    original = ProducerSessions.predecessor_sealed
    patch.setattr(
        ProducerSessions, "predecessor_sealed", lambda self, outcome: original(self, replace(outcome, uninherited=()))
    )


@mutation
def an_empty_segment_names_no_predecessors(patch: Patch) -> None:
    """A sealer that does not know what an empty segment inherits says so in the seal chunk."""
    original = chain_sealer.WriteSeal.info
    patch.setattr(chain_sealer.WriteSeal, "info", lambda self, *who: replace(original(self, *who), uninherited=()))


@FORGETTING.add
def an_older_stream_goes_on_writing(patch: Patch) -> None:
    """Only the newest stream of a producer appends: a late batch could get the sequence of a newer one."""
    patch.setattr(ProducerSessions, "require_newest", lambda self, *stream: None)


# ---- chunks and claims


@mutation
def take_every_chunk_for_a_snapshot(patch: Patch) -> None:
    """Most chunks have only the producers that changed, so a sealer adds them to those of earlier chunks."""
    original = ProducerMap.apply_chunk

    def apply_chunk(self: ProducerMap, info: ChunkInfo) -> None:
        original(self, replace(info, snapshot_at=None))

    patch.setattr(ProducerMap, "apply_chunk", apply_chunk)


@mutation
def claim_without_compare_and_swap(patch: Patch) -> None:
    """The document's etag decides between two processes that claim one id."""

    def claim(store: Any, process: Any, producer: str, instance: str, epoch: int | None) -> Any:
        path = f"producers/{producer}"
        found = yield store.get(process, path)
        claimed = claim_producer(found and found[0], producer, instance, epoch, store.world.now)
        while True:
            current = store.things.get(path)
            try:
                yield store.put(process, path, claimed, current and current.versions[-1][2])
                return claimed.epoch
            except ConditionFailed:
                pass

    patch.setattr(claims, "claim", claim)
