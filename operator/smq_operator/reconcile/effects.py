"""Carries out the effects of core's TopicReconciler, and hands their answers to it.

Store calls and calls to brokers run in separate thread pools, so that neither waits for the other. Every effect is
answered: if one fails unexpectedly, it is logged and reported as failed, and core tries it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import structlog

from smq_core.errors import CorruptDocument, SmqError, Unavailable
from smq_core.model.entities import Layout, Micros, Reason, SealedSegment, Segment, Topic
from smq_core.model.keyspace import KeyRange
from smq_core.model.schema_evolution import schema_of
from smq_core.model.sealed_losses import raise_loss
from smq_core.reading.segment_dag import index_is_stale
from smq_core.reconcile.answers import (
    Answer,
    EffectFailed,
    IndexAppended,
    LayoutRead,
    LayoutWritten,
    ReplicaOpened,
    Sealed,
    TailFlushed,
)
from smq_core.reconcile.effects import AppendIndex, Effect, FlushAhead, OpenReplica, PutLayout, ReadLayout
from smq_core.reconcile.topic_reconciler import TopicReconciler
from smq_core.reconcile.topic_story import describe
from smq_core.sealing.seal_coordinator import RequestSeal, SealEffect, SealFromFiler
from smq_operator.brokers.calls import BrokerCalls
from smq_operator.brokers.sealing import SealExecutor
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.runtime.log import lost_fields
from smq_operator.runtime.problems import LeaderProblems
from smq_operator.runtime.store_pool import StorePool
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL, segment_to_pb, topic_to_pb
from smq_storage.catalog import group_positions, layouts, paths, sealed_index, topic_traces
from smq_storage.catalog.sealed_index import Index, SealedRing
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store
from smq_storage.tables.file_lists import find_file_list

log = structlog.get_logger(__name__)

OPEN_TIMEOUT_SECONDS = 2.0


class EffectRunner:
    """See the module's docstring. Use it on the event loop."""

    def __init__(
        self,
        *,
        store: StorePool,
        brokers: BrokerCalls,
        sealing: SealExecutor,
        clock: Callable[[], int],
        problems: LeaderProblems,
        max_upload_age: Micros,
        host_of: Callable[[str], str],
    ) -> None:
        """``host_of`` returns a broker that hosts segments of the topic with that uid, or an empty text."""
        self._problems = problems
        self._store = store
        self._brokers = brokers
        self._sealing = sealing
        self._now = clock
        self._max_upload_age = max_upload_age
        self._host_of = host_of

    def forget_broker(self, incarnation: str) -> None:
        """Closes the connection to this incarnation, which is gone."""
        self._brokers.forget(incarnation)

    async def run(self, managed: ManagedTopic, reconciler: TopicReconciler, effect: Effect) -> None:
        """Carries out one effect and hands its answer to ``reconciler``."""
        try:
            answer = await self._answer(managed, reconciler, effect)
        except Exception as error:
            _log_failure(reconciler.topic, reconciler.layout, effect, error)
            answer = EffectFailed(effect, error)
        reconciler.handle(answer, self._now())

    async def _answer(self, managed: ManagedTopic, reconciler: TopicReconciler, effect: Effect) -> Answer:
        match effect:
            case ReadLayout():
                return await self._read_layout(managed, reconciler, effect)
            case PutLayout():
                etag = await self._store.run(_put, effect.layout, effect.etag, self._store.retry_policy)
                return LayoutWritten(effect.layout, etag)
            case OpenReplica():
                return await self._open(reconciler, effect)
            case FlushAhead():
                segment, plan = effect.segment, _planned_seal(effect.segment, reconciler.layout)
                await self._sealing.flush_ahead(reconciler.topic, segment.name, segment.primary, *plan)
                return TailFlushed(segment.name)
            case RequestSeal() | SealFromFiler():
                return await self._seal(reconciler, effect)
            case AppendIndex():
                entries = await self._store.run(_append, reconciler.topic, effect, self._store.retry_policy)
                managed.index.add(entries)
                return IndexAppended(tuple(entry.name for entry in entries))

    async def _read_layout(self, managed: ManagedTopic, reconciler: TopicReconciler, effect: ReadLayout) -> Answer:
        topic, was_known = reconciler.topic, reconciler.layout is not None
        try:
            found, known = await self._store.run(_read, topic, not managed.index.is_read, self._store.retry_policy)
        except CorruptDocument as error:
            managed.quarantine(error, self._problems)
            raise
        layout, etag = found if found is not None else (None, None)
        why = "" if layout is not None else self._not_new(managed, reconciler, was_known)
        if why:
            missing = topic_traces.missing(paths.layout(topic.name, topic.uid), why)
            managed.quarantine(missing, self._problems)
            return EffectFailed(effect, missing)
        managed.clear_quarantine(self._problems)
        if reconciler.layout is not None and (layout is None or layout.version < reconciler.layout.version):
            # The read began before the last PUT, or the reply was stale.
            version = layout.version if layout is not None else None
            log.warning("layout.stale", topic=topic.name, known=reconciler.layout.version, found=version)
            return EffectFailed(effect, Unavailable(f"the filer returned the former layout {version}"))
        if layout is not None and index_is_stale(layout, known.entries, known.removed):
            log.warning("index.stale", topic=topic.name, layout=layout.version)
            return EffectFailed(effect, Unavailable("the filer returned a former index of sealed segments"))
        managed.index.merge(known)
        return LayoutRead(layout, etag)

    def _not_new(self, managed: ManagedTopic, reconciler: TopicReconciler, was_known: bool) -> str:
        """What shows that the topic had a layout; empty if nothing does."""
        if was_known:
            return "this leader has read the file before"
        hosted = self._host_of(reconciler.topic.uid)
        if hosted and reconciler.layout is None:
            return f"broker {hosted} hosts segments of it"
        return "the status of its resource has segments" if managed.desired.was_created else ""

    async def _open(self, reconciler: TopicReconciler, effect: OpenReplica) -> Answer:
        segment, replica, began = effect.segment, effect.replica, self._now()
        schema = schema_of(segment.schema_version, reconciler.layout, reconciler.topic.spec.schema)
        request = pb.OpenSegment(
            protocol=PROTOCOL,
            topic=topic_to_pb(reconciler.topic, schema),
            segment=segment_to_pb(segment),
            incarnation=replica.incarnation,
            max_upload_age=self._max_upload_age,
        )
        await self._brokers.call(replica, "open", request, timeout=OPEN_TIMEOUT_SECONDS)
        took = (self._now() - began) // 1000
        log.debug("segment.opened", topic=reconciler.topic.name, segment=segment.name, broker=replica.broker, ms=took)
        return ReplicaOpened(segment.name, replica.incarnation)

    async def _seal(self, reconciler: TopicReconciler, effect: SealEffect) -> Answer:
        topic, layout, name = reconciler.topic, reconciler.layout, effect.segment
        assert layout is not None
        if isinstance(effect, RequestSeal):
            by, plan = effect.replica.broker, _planned_seal(layout.segment(name), layout)
            outcome = await self._sealing.request_seal(topic, effect, *plan)
        else:
            by, outcome = "the filer", await self._sealing.seal_from_filer(topic, layout, effect)
        if reconciler.outcome(name) is None:  # every replica gets the request, and only the first outcome is new
            lost = lost_fields(outcome.lost)
            say = log.error if lost else log.info
            say("segment.sealed", topic=topic.name, segment=name, end=outcome.end, by=by, **lost)
        return Sealed(outcome)


def _log_failure(topic: Topic, layout: Layout | None, effect: Effect, error: Exception) -> None:
    kind, segment, detail = describe(effect, layout)
    what = {"topic": topic.name, "effect": kind, "segment": segment, "detail": detail}
    if isinstance(error, SmqError):
        log.warning("effect.failed", error=error.code, message=error.message, **what)
    else:
        log.error("effect.failed", exc_info=error, **what)


def _planned_seal(segment: Segment, layout: Layout | None) -> tuple[str, list[Segment]]:
    """Reason and successors of a seal, as the layout has them."""
    reason = (segment.sealed_because or Reason.MANUAL).value
    return reason, [layout.segment(name) for name in segment.successors if layout is not None and name in layout]


def _read(
    store: Store, topic: Topic, first: bool, retry_policy: RetryPolicy
) -> tuple[tuple[Layout, str] | None, Index]:
    """The layout and the index. The first time, losses are raised to what groups committed under an earlier leader."""
    # The layout first: a segment that has left it is in the index already.
    found = layouts.read_layout(store, topic.name, topic.uid)
    index = sealed_index.load(store, topic.name, topic.uid)
    if found is None:
        topic_traces.check_new(store, topic.name, topic.uid)
    elif not index.exists:
        if found[0].next_number > len(found[0].segments):
            page = paths.index_page(topic.name, topic.uid, 0)
            raise topic_traces.missing(page, "segments have left its layout")
        sealed_index.create_first_page(store, topic.name, topic.uid, retry_policy)
    committed = _committed(store, topic, index.entries) if first else {}
    if any(entry.lost is not None and committed.get(entry.name, 0) > entry.lost.stop for entry in index.entries):
        sealed_index.raise_losses(store, topic.name, topic.uid, committed, retry_policy)
        index = sealed_index.load(store, topic.name, topic.uid)
    return found, index


def _put(store: Store, layout: Layout, etag: str | None, retry_policy: RetryPolicy) -> str:
    new = layouts.put_layout(store, layout, etag, retry_policy)
    if etag is None:
        sealed_index.create_first_page(store, layout.topic, layout.uid, retry_policy)
    return new


def _append(store: Store, topic: Topic, effect: AppendIndex, retry_policy: RetryPolicy) -> list[SealedSegment]:
    committed = _committed(store, topic, effect.entries)
    sized = [_with_files(store, topic, raise_loss(entry, committed.get(entry.name, 0))) for entry in effect.entries]
    ring = SealedRing(KeyRange(0, topic.spec.partitions), effect.partitions) if topic.spec.has_kafka_offsets else None
    sealed_index.append(store, topic.name, topic.uid, sized, retry_policy, ring)
    return sized


def _committed(store: Store, topic: Topic, entries: Iterable[SealedSegment]) -> dict[str, int]:
    """The highest positions of groups, if any of these segments lost messages; a group may have read some of them."""
    if all(entry.lost is None for entry in entries):
        return {}
    return group_positions.highest_positions(store, topic.name, topic.uid)


def _with_files(store: Store, topic: Topic, entry: SealedSegment) -> SealedSegment:
    """The entry with its bytes, and with its file list if the broker has written it by now. Nothing waits for one."""
    name = paths.file_list_name(entry.name, 0)
    file_list = find_file_list(store, topic.name, topic.uid, name)
    if file_list is not None and (file_list.segment, file_list.end) == (entry.name, entry.end):
        return replace(entry, bytes=file_list.bytes, file_list=name)
    if entry.end == 0:
        return entry
    files = ChunkChain(store, topic.name, topic.uid, entry.name).files()
    return replace(entry, bytes=sum(file.size for file in files))
