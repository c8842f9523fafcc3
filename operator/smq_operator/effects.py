"""Carries out what core's TopicLeader wants, and feeds the answers back.

Store calls run in one thread pool, calls to brokers in another, so that neither waits for the other. Every effect gets
an answer, whatever happens: one that fails unexpectedly is logged and answered as failed, and core tries again.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol, TypeVar

import structlog
from google.protobuf.message import Message

from smq_core import sealer
from smq_core.dag import index_is_behind
from smq_core.effects import AppendIndex, Effect, FlushAhead, OpenReplica, PutLayout, ReadLayout
from smq_core.errors import Conflict, InvalidRequest, NotHeld, Overloaded, SmqError, WrongIncarnation
from smq_core.leading import TopicLeader
from smq_core.model import ChunkInfo, Layout, Reason, Replica, SealedSegment, SealOutcome, Segment, Topic
from smq_core.sealing import AskReplica, SealFromFiler
from smq_operator.topic import TopicRun
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL, outcome_from_pb, segment_to_pb, topic_to_pb
from smq_storage import index, layouts
from smq_storage.chain import Chain
from smq_storage.chunks import chunk_schema
from smq_storage.conditional import Patience, Taken
from smq_storage.index import Index
from smq_storage.store import Store

T = TypeVar("T")
log = structlog.get_logger()

OPEN_TIMEOUT = 2.0
OVERLOADED_TRIES = 4
FLUSH_TIMEOUT = 5.0
SEAL_TIMEOUT = 35.0
"""Longer than core's patience: an answer that comes late is still good. A broker answers within 30 s."""


class BrokerCalls(Protocol):
    """What ``calls.Brokers`` does; tests put their own in its place."""

    async def call(
        self,
        replica: Replica,
        action: str,
        request: Message,
        *,
        timeout: float,
        urgent: bool = False,
        unhurried: bool = False,
    ) -> bytes: ...

    def forget(self, incarnation: str) -> None: ...


class Effects:
    """See the module's docstring. Use it on the event loop."""

    def __init__(
        self, store: Store, brokers: BrokerCalls, pool: ThreadPoolExecutor, clock: Callable[[], int], patience: Patience
    ) -> None:
        self._store = store
        self._brokers = brokers
        self._pool = pool
        self._now = clock
        self._patience = patience
        self._overloaded: dict[tuple[str, str, str], int] = {}
        self.me = f"leader-{uuid.uuid4().hex[:12]}"

    def gone(self, incarnation: str) -> None:
        """Nobody will call this incarnation any more."""
        self._brokers.forget(incarnation)

    async def in_pool(self, call: Callable[..., T], *args: object) -> T:
        """Runs a call that blocks on the store."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *args)

    async def run(self, run: TopicRun, leader: TopicLeader, effect: Effect) -> None:
        """Carries out one effect and gives ``leader`` the answer."""
        match effect:
            case ReadLayout():
                await self._read_layout(run, leader)
            case PutLayout():
                await self._put_layout(run, leader, effect)
            case OpenReplica():
                await self._open(leader, effect)
            case FlushAhead():
                await self._flush_ahead(leader, effect)
            case AskReplica():
                await self._ask(leader, effect)
            case SealFromFiler():
                await self._seal_from_filer(leader, effect)
            case AppendIndex():
                await self._append_index(run, leader, effect)

    # ---- the layout

    async def _read_layout(self, run: TopicRun, leader: TopicLeader) -> None:
        topic = leader.topic
        try:
            found, known = await self.in_pool(_read, self._store, topic)
        except Exception as error:
            self._failed("layout.read", topic, error)
            leader.read_failed(self._now())
            return
        if leader.layout is not None and (found is None or found[0].version < leader.layout.version):
            # Read before the last PUT; a stale answer; or somebody deleted the file: that is said again and again.
            log.warning("layout.older", topic=topic.name, known=leader.layout.version, found=found and found[0].version)
            leader.read_failed(self._now())
            return
        if found is not None and index_is_behind(found[0], known.entries, known.removed):
            log.warning("index.older", topic=topic.name, layout=found[0].version)
            leader.read_failed(self._now())
            return
        run.take_index(known)
        leader.layout_read(found)

    async def _put_layout(self, run: TopicRun, leader: TopicLeader, effect: PutLayout) -> None:
        run.expected = effect.layout
        try:
            etag = await self.in_pool(layouts.put_layout, self._store, effect.layout, effect.etag, self._patience)
        except Conflict as error:
            self._failed("layout.put", leader.topic, error)
            leader.layout_lost(self._now())
        except Exception as error:
            self._failed("layout.put", leader.topic, error)
            leader.layout_lost(self._now(), unclear=True)
        else:
            leader.layout_put(effect.layout, etag)
        finally:
            run.expected = None

    # ---- replicas

    async def _open(self, leader: TopicLeader, effect: OpenReplica) -> None:
        segment, replica, began = effect.segment, effect.replica, self._now()
        request = pb.OpenSegment(
            protocol=PROTOCOL,
            topic=topic_to_pb(leader.topic),
            segment=segment_to_pb(segment),
            incarnation=replica.incarnation,
        )
        try:
            await self._brokers.call(replica, "open", request, timeout=OPEN_TIMEOUT)
        except Exception as error:
            # These will never open it, so it has to go elsewhere.
            no = isinstance(error, (NotHeld, WrongIncarnation, InvalidRequest))
            refused = no or self._too_full(leader.topic.uid, effect, error)
            self._failed("segment.open", leader.topic, error, segment=segment.name, broker=replica.broker)
            leader.open_failed(segment.name, replica.incarnation, self._now(), refused=refused)
        else:
            self._overloaded.pop((leader.topic.uid, segment.name, replica.incarnation), None)
            took = (self._now() - began) // 1000
            log.debug("segment.opened", topic=leader.topic.name, segment=segment.name, broker=replica.broker, ms=took)
            leader.opened(segment.name, replica.incarnation)

    def _too_full(self, uid: str, effect: OpenReplica, error: Exception) -> bool:
        """True when a broker without memory to spare was asked often enough."""
        if not isinstance(error, Overloaded):
            return False
        key = (uid, effect.segment.name, effect.replica.incarnation)
        self._overloaded[key] = self._overloaded.get(key, 0) + 1
        if self._overloaded[key] < OVERLOADED_TRIES:
            return False
        del self._overloaded[key]
        return True

    async def _flush_ahead(self, leader: TopicLeader, effect: FlushAhead) -> None:
        request = _planned_seal(leader.topic, effect.segment, effect.segment.primary, leader.layout)
        request.only_flush = True
        try:
            await self._brokers.call(effect.segment.primary, "seal", request, timeout=FLUSH_TIMEOUT, unhurried=True)
        except Exception as error:
            self._failed("segment.flush", leader.topic, error, segment=effect.segment.name)
        leader.flushed(effect.segment.name)

    async def _ask(self, leader: TopicLeader, effect: AskReplica) -> None:
        replica, name = effect.replica, effect.segment
        try:
            assert leader.layout is not None
            request = _planned_seal(leader.topic, leader.layout.segment(name), replica, leader.layout)
            body = await self._brokers.call(replica, "seal", request, timeout=SEAL_TIMEOUT)
            outcome = outcome_from_pb(pb.SealOutcome.FromString(body))
        except Exception as error:
            self._failed("segment.seal", leader.topic, error, segment=name, broker=replica.broker)
            leader.seal_refused(name, replica.incarnation, self._now(), not_held=isinstance(error, NotHeld))
        else:
            self._sealed(leader, outcome, by=replica.broker)

    # ---- the filer

    async def _seal_from_filer(self, leader: TopicLeader, effect: SealFromFiler) -> None:
        try:
            outcome = await self.in_pool(
                seal_in_filer,
                self._store,
                leader.topic,
                effect.segment,
                self.me,
                effect.known_watermark,
                self._patience,
            )
        except Exception as error:
            self._failed("segment.seal", leader.topic, error, segment=effect.segment, broker="(from the filer)")
            leader.filer_seal_failed(effect.segment, self._now())
        else:
            self._sealed(leader, outcome, by="the filer")

    async def _append_index(self, run: TopicRun, leader: TopicLeader, effect: AppendIndex) -> None:
        topic = leader.topic
        try:
            entries = await self.in_pool(_append, self._store, topic, effect.entries, self._patience)
        except Exception as error:
            self._failed("index.append", topic, error)
            leader.index_failed(self._now())
        else:
            run.take_entries(entries)
            leader.indexed([entry.name for entry in entries])

    # ---- words

    def _sealed(self, leader: TopicLeader, outcome: SealOutcome, *, by: str) -> None:
        if leader.outcome(outcome.segment) is None:  # every replica is asked, to let go; the first answer is the news
            lost = {"lost_from": outcome.lost[0], "lost_to": outcome.lost[1]} if outcome.lost else {}
            say = log.error if outcome.lost else log.info
            say("segment.sealed", topic=leader.topic.name, segment=outcome.segment, end=outcome.end, by=by, **lost)
        leader.sealed(outcome)

    def _failed(self, what: str, topic: Topic, error: Exception, **more: str) -> None:
        if isinstance(error, SmqError):
            log.warning(f"{what}.failed", topic=topic.name, error=error.code, message=error.message, **more)
        else:
            log.error(f"{what}.failed", topic=topic.name, exc_info=error, **more)


def seal_request(
    topic: Topic, segment: str, replica: Replica, reason: str, successors: Iterable[Segment] = ()
) -> pb.SealSegment:
    return pb.SealSegment(
        protocol=PROTOCOL,
        topic=topic.name,
        uid=topic.uid,
        segment=segment,
        incarnation=replica.incarnation,
        reason=reason,
        successors=[segment_to_pb(s) for s in successors],
    )


def _planned_seal(topic: Topic, segment: Segment, replica: Replica, layout: Layout | None) -> pb.SealSegment:
    """As the layout has it."""
    reason = (segment.sealed_because or Reason.MANUAL).value
    successors = [layout.segment(name) for name in segment.successors if layout is not None and name in layout]
    return seal_request(topic, segment.name, replica, reason, successors)


def seal_in_filer(
    store: Store, topic: Topic, segment: str, me: str, known_watermark: int | None, patience: Patience
) -> SealOutcome:
    """Seals a segment at its chain's end; holds nothing of it. Blocks. Raises StoreUnavailable."""
    chain = Chain(store, topic.name, topic.uid, segment)
    schema = chunk_schema(topic.spec.schema)
    hint = chain.latest_hint()
    # Starting at a chunk that exists is as good as walking from 0: it carries the producers' state.
    held = sealer.Held(hint if hint and chain.info(hint) is not None else 0)
    steps: Generator[sealer.Wish, sealer.Answer, SealOutcome] = sealer.seal(
        segment, held, known_watermark=known_watermark
    )
    answer: ChunkInfo | bool | None = None
    try:
        wish = next(steps)
        while True:
            match wish:
                case sealer.ReadChunk(first):
                    answer = chain.info(first)
                case sealer.WriteSeal(end, producers, lost):
                    info = ChunkInfo(segment, end, 0, me, uuid.uuid4().hex, sealed=True, producers=producers, lost=lost)
                    answer = not isinstance(chain.put_seal(info, patience, schema), Taken)
                case sealer.WriteChunk():
                    raise AssertionError("a sealer that holds nothing has nothing to write")
            wish = steps.send(answer)
    except StopIteration as done:
        outcome: SealOutcome = done.value
        return outcome


def _read(store: Store, topic: Topic) -> tuple[tuple[Layout, str] | None, Index]:
    # In this order: what has left the layout is in the index already.
    found = layouts.read_layout(store, topic.name, topic.uid)
    return found, index.load(store, topic.name, topic.uid)


def _append(store: Store, topic: Topic, entries: tuple[SealedSegment, ...], patience: Patience) -> list[SealedSegment]:
    sized = [replace(entry, bytes=_bytes_of(store, topic, entry)) for entry in entries]
    index.append(store, topic.name, topic.uid, sized, patience)
    return sized


def _bytes_of(store: Store, topic: Topic, entry: SealedSegment) -> int:
    if entry.end == 0:
        return 0
    return sum(file.size for file in Chain(store, topic.name, topic.uid, entry.name).files())
