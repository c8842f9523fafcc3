"""Carries out the effects of core's TopicReconciler, and reports their outcome to it.

Store calls and calls to brokers run in separate thread pools, so that neither waits for the other. Every effect is
answered: if one fails unexpectedly, it is logged and reported as failed, and core tries it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import structlog

from smq_core.errors import (
    Conflict,
    CorruptDocument,
    InvalidRequest,
    JournalIncomplete,
    NotHosted,
    Overloaded,
    SmqError,
    StoreUnavailable,
    WrongIncarnation,
)
from smq_core.model.entities import Layout, Micros, Reason, SealedSegment, SealOutcome, Segment, Topic
from smq_core.model.schema_evolution import schema_of
from smq_core.model.sealed_losses import raise_loss
from smq_core.reading.segment_dag import index_is_stale
from smq_core.reconcile.effects import AppendIndex, Effect, FlushAhead, OpenReplica, PutLayout, ReadLayout
from smq_core.reconcile.topic_reconciler import TopicReconciler
from smq_core.sealing.seal_coordinator import RequestSeal, SealFromFiler
from smq_operator.brokers.calls import BrokerCalls
from smq_operator.brokers.sealing import SealExecutor
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.runtime.log import lost_fields
from smq_operator.runtime.problems import LeaderProblems
from smq_operator.runtime.store_pool import StorePool
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL, segment_to_pb, topic_to_pb
from smq_storage.catalog import group_positions, layouts, paths, sealed_index, topic_traces
from smq_storage.catalog.sealed_index import Index
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store
from smq_storage.tables.file_lists import find_file_list

log = structlog.get_logger(__name__)

OPEN_TIMEOUT_SECONDS = 2.0
MAX_OVERLOADED_TRIES = 4


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
        self._overloaded_attempts: dict[tuple[str, str, str], int] = {}

    def forget_broker(self, incarnation: str) -> None:
        """Closes the connection to this incarnation, which is gone."""
        self._brokers.forget(incarnation)

    async def run(self, managed: ManagedTopic, reconciler: TopicReconciler, effect: Effect) -> None:
        """Carries out one effect and reports its outcome to ``reconciler``."""
        match effect:
            case ReadLayout():
                await self._read_layout(managed, reconciler)
            case PutLayout():
                await self._put_layout(managed, reconciler, effect)
            case OpenReplica():
                await self._open(reconciler, effect)
            case FlushAhead():
                await self._flush_ahead(reconciler, effect)
            case RequestSeal():
                await self._seal_by_replica(reconciler, effect)
            case SealFromFiler():
                await self._seal_from_filer(reconciler, effect)
            case AppendIndex():
                await self._append_index(managed, reconciler, effect)

    # ---- the layout

    async def _read_layout(self, managed: ManagedTopic, reconciler: TopicReconciler) -> None:
        topic, was_known = reconciler.topic, reconciler.layout is not None
        try:
            found, known = await self._store.run(_read, topic, not managed.index_read, self._store.retry_policy)
        except Exception as error:
            self._log_failure("layout.read", topic, error)
            if isinstance(error, CorruptDocument):
                managed.quarantine(error, self._problems)
            reconciler.read_failed(self._now())
            return
        why = "" if found is not None else self._not_new(managed, reconciler, was_known)
        if why:
            managed.quarantine(topic_traces.missing(paths.layout(topic.name, topic.uid), why), self._problems)
            reconciler.read_failed(self._now())
            return
        managed.clear_quarantine(self._problems)
        if reconciler.layout is not None and (found is None or found[0].version < reconciler.layout.version):
            # The read began before the last PUT, or the reply was stale.
            log.warning(
                "layout.stale", topic=topic.name, known=reconciler.layout.version, found=found and found[0].version
            )
            reconciler.read_failed(self._now())
            return
        if found is not None and index_is_stale(found[0], known.entries, known.removed):
            log.warning("index.stale", topic=topic.name, layout=found[0].version)
            reconciler.read_failed(self._now())
            return
        managed.merge_index(known)
        reconciler.layout_read(found)

    def _not_new(self, managed: ManagedTopic, reconciler: TopicReconciler, was_known: bool) -> str:
        """What shows that the topic had a layout; empty if nothing does."""
        if was_known:
            return "this leader has read the file before"
        hosted = self._host_of(reconciler.topic.uid)
        if hosted and reconciler.layout is None:
            return f"broker {hosted} hosts segments of it"
        return "the status of its resource has segments" if managed.desired.was_created else ""

    async def _put_layout(self, managed: ManagedTopic, reconciler: TopicReconciler, effect: PutLayout) -> None:
        managed.pending_layout = effect.layout
        try:
            etag = await self._store.run(_put, effect.layout, effect.etag, self._store.retry_policy)
        except Conflict as error:
            self._log_failure("layout.put", reconciler.topic, error)
            reconciler.layout_put_failed(self._now())
        except Exception as error:
            self._log_failure("layout.put", reconciler.topic, error)
            managed.layout_write_failure = error.message if isinstance(error, StoreUnavailable) else ""
            reconciler.layout_put_failed(self._now(), unclear=True)
        else:
            managed.layout_write_failure = ""
            reconciler.layout_put(effect.layout, etag)
        finally:
            managed.pending_layout = None

    # ---- replicas

    async def _open(self, reconciler: TopicReconciler, effect: OpenReplica) -> None:
        segment, replica, began = effect.segment, effect.replica, self._now()
        try:
            schema = schema_of(segment.schema_version, reconciler.layout, reconciler.topic.spec.schema)
            request = pb.OpenSegment(
                protocol=PROTOCOL,
                topic=topic_to_pb(reconciler.topic, schema),
                segment=segment_to_pb(segment),
                incarnation=replica.incarnation,
                max_upload_age=self._max_upload_age,
            )
            await self._brokers.call(replica, "open", request, timeout=OPEN_TIMEOUT_SECONDS)
        except Exception as error:
            # After these errors the broker will never open the segment, so core has to place it elsewhere.
            no = isinstance(error, (NotHosted, WrongIncarnation, InvalidRequest))
            refused = no or self._overloaded_too_often(reconciler.topic.uid, effect, error)
            self._log_failure("segment.open", reconciler.topic, error, segment=segment.name, broker=replica.broker)
            reconciler.open_failed(segment.name, replica.incarnation, self._now(), refused=refused)
        else:
            self._overloaded_attempts.pop((reconciler.topic.uid, segment.name, replica.incarnation), None)
            took = (self._now() - began) // 1000
            log.debug(
                "segment.opened", topic=reconciler.topic.name, segment=segment.name, broker=replica.broker, ms=took
            )
            reconciler.opened(segment.name, replica.incarnation)

    def _overloaded_too_often(self, uid: str, effect: OpenReplica, error: Exception) -> bool:
        """Whether this broker has refused the segment for lack of memory too often."""
        if not isinstance(error, Overloaded):
            return False
        key = (uid, effect.segment.name, effect.replica.incarnation)
        self._overloaded_attempts[key] = self._overloaded_attempts.get(key, 0) + 1
        if self._overloaded_attempts[key] < MAX_OVERLOADED_TRIES:
            return False
        del self._overloaded_attempts[key]
        return True

    async def _flush_ahead(self, reconciler: TopicReconciler, effect: FlushAhead) -> None:
        segment, plan = effect.segment, _planned_seal(effect.segment, reconciler.layout)
        try:
            await self._sealing.flush_ahead(reconciler.topic, segment.name, segment.primary, *plan)
        except Exception as error:
            self._log_failure("segment.flush", reconciler.topic, error, segment=effect.segment.name)
        reconciler.flushed(effect.segment.name)

    async def _seal_by_replica(self, reconciler: TopicReconciler, effect: RequestSeal) -> None:
        replica, name = effect.replica, effect.segment
        try:
            assert reconciler.layout is not None
            plan = _planned_seal(reconciler.layout.segment(name), reconciler.layout)
            outcome = await self._sealing.request_seal(reconciler.topic, effect, *plan)
        except JournalIncomplete as error:
            self._log_failure("segment.seal", reconciler.topic, error, segment=name, broker=replica.broker)
            reconciler.journal_incomplete(name, replica.incarnation, self._now(), error.end, error.watermark)
        except NotHosted as error:
            self._log_failure("segment.seal", reconciler.topic, error, segment=name, broker=replica.broker)
            reconciler.not_hosted(name, replica.incarnation, certain=error.certain)
        except Exception as error:
            self._log_failure("segment.seal", reconciler.topic, error, segment=name, broker=replica.broker)
            reconciler.seal_refused(name, replica.incarnation, self._now())
        else:
            self._record_seal(reconciler, outcome, by=replica.broker)

    # ---- the filer

    async def _seal_from_filer(self, reconciler: TopicReconciler, effect: SealFromFiler) -> None:
        try:
            assert reconciler.layout is not None
            outcome = await self._sealing.seal_from_filer(reconciler.topic, reconciler.layout, effect)
        except Exception as error:
            self._log_failure(
                "segment.seal", reconciler.topic, error, segment=effect.segment, broker="(from the filer)"
            )
            reconciler.filer_seal_failed(effect.segment, self._now())
        else:
            self._record_seal(reconciler, outcome, by="the filer")

    async def _append_index(self, managed: ManagedTopic, reconciler: TopicReconciler, effect: AppendIndex) -> None:
        topic = reconciler.topic
        try:
            entries = await self._store.run(_append, topic, effect.entries, self._store.retry_policy)
        except Exception as error:
            self._log_failure("index.append", topic, error)
            reconciler.append_index_failed(self._now())
        else:
            managed.add_sealed(entries)
            reconciler.indexed([entry.name for entry in entries])

    # ---- logs

    def _record_seal(self, reconciler: TopicReconciler, outcome: SealOutcome, *, by: str) -> None:
        if (
            reconciler.outcome(outcome.segment) is None
        ):  # every replica gets the request, to free its tail; only the first outcome is new
            lost = lost_fields(outcome.lost)
            say = log.error if lost else log.info
            say("segment.sealed", topic=reconciler.topic.name, segment=outcome.segment, end=outcome.end, by=by, **lost)
        reconciler.sealed(outcome)

    def _log_failure(self, what: str, topic: Topic, error: Exception, **more: str) -> None:
        if isinstance(error, SmqError):
            log.warning(f"{what}.failed", topic=topic.name, error=error.code, message=error.message, **more)
        else:
            log.error(f"{what}.failed", topic=topic.name, exc_info=error, **more)


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


def _append(
    store: Store, topic: Topic, entries: tuple[SealedSegment, ...], retry_policy: RetryPolicy
) -> list[SealedSegment]:
    committed = _committed(store, topic, entries)
    sized = [_with_files(store, topic, raise_loss(entry, committed.get(entry.name, 0))) for entry in entries]
    sealed_index.append(store, topic.name, topic.uid, sized, retry_policy)
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
