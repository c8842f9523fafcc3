"""Seals one segment, through a replica or from the filer. Failover, topic deletion and stale segments all use this."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterable

from smq_core.model.chunk_info import ChunkInfo, SealOutcome
from smq_core.model.entities import Layout, Replica, Segment, Topic, range_of
from smq_core.model.partition_offsets import offsets_from_zero
from smq_core.model.schema_evolution import schema_of
from smq_core.replica.log_state import LogState
from smq_core.replica.partition_counter import PartitionCounter
from smq_core.sealing import chain_sealer
from smq_core.sealing.seal_coordinator import RequestSeal, SealFromFiler
from smq_operator.brokers.calls import BrokerCalls
from smq_operator.runtime.store_pool import StorePool
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL, outcome_from_pb, segment_to_pb
from smq_storage.catalog import group_positions
from smq_storage.chunks.chain import ChunkChain
from smq_storage.chunks.parquet_codec import chunk_schema
from smq_storage.object_store.conditional_writes import RetryPolicy, WriteConflict
from smq_storage.object_store.store import Store

# Longer than core waits before it tries another replica: a late answer is still good. Brokers answer in 30 s.
SEAL_TIMEOUT_SECONDS = 35.0
FLUSH_TIMEOUT_SECONDS = 5.0


class SealExecutor:
    """Carries out seals; the caller decides which. Every method may be repeated, and raises SmqError if it fails.

    ``receiver`` returns the process that answers for a replica, which has ended if a newer one has its journal.
    ``writer_id`` names this leader in the seal chunks that it writes itself.
    """

    def __init__(
        self, *, store: StorePool, brokers: BrokerCalls, receiver: Callable[[Replica], Replica], writer_id: str
    ) -> None:
        self._store = store
        self._brokers = brokers
        self._receiver = receiver
        self._writer_id = writer_id

    async def request_seal(
        self, topic: Topic, step: RequestSeal, reason: str, successors: Iterable[Segment] = ()
    ) -> SealOutcome:
        """Lets a replica seal the segment, which writes its unsealed messages to the filer first.

        Raises JournalIncomplete if the replica's process has ended and its journal lacks messages.
        """
        request = _seal_request(topic, step.segment, step.replica, reason, successors)
        request.accept_incomplete = step.accept_incomplete
        if step.known_watermark is not None:
            request.known_watermark = step.known_watermark
        receiver = self._receiver(step.replica)
        body = await self._brokers.call(receiver, "seal", request, timeout=SEAL_TIMEOUT_SECONDS)
        return outcome_from_pb(pb.SealOutcome.FromString(body))

    async def flush_ahead(
        self, topic: Topic, segment: str, replica: Replica, reason: str, successors: Iterable[Segment] = ()
    ) -> None:
        """Lets a replica write to the filer what the coming seal would write, so that the seal is short."""
        request = _seal_request(topic, segment, replica, reason, successors)
        request.only_flush = True
        await self._brokers.call(replica, "seal", request, timeout=FLUSH_TIMEOUT_SECONDS, background=True)

    async def seal_from_filer(self, topic: Topic, layout: Layout, step: SealFromFiler) -> SealOutcome:
        """Seals the segment of that layout at the end of its chunk chain, without any replica."""
        return await self._store.run(seal_from_filer, topic, layout, step, self._writer_id, self._store.retry_policy)

    async def find_seal(self, topic: Topic, segment: str) -> SealOutcome | None:
        """The outcome of a seal that was made earlier, by whomever; None when the segment has no seal chunk."""
        return await self._store.run(_find_seal, topic, segment)


def _seal_request(
    topic: Topic, segment: str, replica: Replica, reason: str, successors: Iterable[Segment]
) -> pb.SealSegment:
    return pb.SealSegment(
        protocol=PROTOCOL,
        topic=topic.name,
        uid=topic.uid,
        segment=segment,
        incarnation=replica.incarnation,
        reason=reason,
        successors=[segment_to_pb(successor) for successor in successors],
    )


def seal_from_filer(
    store: Store, topic: Topic, layout: Layout, step: SealFromFiler, writer_id: str, retry_policy: RetryPolicy
) -> SealOutcome:
    """As the method of :class:`SealExecutor`. Blocks on the store, and raises StoreUnavailable."""
    chain = ChunkChain(store, topic.name, topic.uid, step.segment)
    version = layout.segment(step.segment).schema_version
    schema = chunk_schema(schema_of(version, layout, topic.spec.schema).columns)
    starts_at_zero = topic.spec.has_kafka_offsets and not step.predecessors
    partitions = PartitionCounter(offsets_from_zero(range_of(step.segment))) if starts_at_zero else None
    tail = chain_sealer.UnsealedTail(
        start=chain.snapshot_hint(), state=LogState(partitions=partitions), uninherited=step.predecessors
    )
    steps: Generator[chain_sealer.StoreRequest, chain_sealer.StoreReply, SealOutcome] = chain_sealer.seal(
        step.segment, tail, known_watermark=_acked_upto(store, topic, step), at_least=step.at_least
    )
    reply: ChunkInfo | bool | None = None
    try:
        request = next(steps)
        while True:
            match request:
                case chain_sealer.ReadChunk(first):
                    reply = chain.info(first)
                case chain_sealer.WriteSeal():
                    info = request.info(writer_id, uuid.uuid4().hex, version)
                    reply = not isinstance(chain.put_seal(info, retry_policy, schema), WriteConflict)
                case chain_sealer.WriteChunk():
                    raise AssertionError("a sealer without an unsealed tail has no chunk to write")
            request = steps.send(reply)
    except StopIteration as done:
        outcome: SealOutcome = done.value
        return outcome


def _acked_upto(store: Store, topic: Topic, step: SealFromFiler) -> int | None:
    """Up to where messages are known to be acked: by replicas' reports, and by what groups have committed."""
    if not step.at_least:
        return step.known_watermark
    committed = group_positions.highest_positions(store, topic.name, topic.uid).get(step.segment)
    return max((it for it in (step.known_watermark, committed) if it is not None), default=None)


def _find_seal(store: Store, topic: Topic, segment: str) -> SealOutcome | None:
    info = ChunkChain(store, topic.name, topic.uid, segment).read_seal_chunk()
    return None if info is None else info.outcome
