"""How far living segments can have been read: what brokers reported, or what they answer when that is not enough.

Reports come each second, and a member commits what it was delivered since. So a position beyond the last report is
checked by asking the segment's replicas. Requests that come meanwhile share the next question to a broker. Readers also
read the chunks, which may have more than the primary knows, so nothing is refused before the chain's end was read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress

import structlog
from google.protobuf.empty_pb2 import Empty

from smq_core.errors import InvalidRequest, SmqError
from smq_core.model.entities import Durability, Positions, Replica, Segment
from smq_core.reading.position_rules import check_positions, impossible_positions
from smq_operator.brokers.calls import BrokerCalls
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.runtime.store_pool import StorePool
from smq_proto.v1 import data_pb2 as pb
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.store import Store

log = structlog.get_logger(__name__)

STATUS_TIMEOUT_SECONDS = 1.0
# For the chains of a request's segments. The questions and this take less than the timeout of clients, 10 s.
CHAIN_TIMEOUT_SECONDS = 2.0
# Between two questions to a broker, so that groups that commit often cost it at most 50 answers a second.
STATUS_PAUSE_SECONDS = 0.02


class SegmentReach:
    """See the module's docstring. Use it on the event loop."""

    def __init__(self, brokers: BrokerCalls, store: StorePool) -> None:
        self._brokers = brokers
        self._store = store
        self._questions: dict[str, asyncio.Task[pb.BrokerStatus | None]] = {}
        """By incarnation: the question that is not sent yet."""
        self._polled_at: dict[str, float] = {}

    async def check(self, managed: ManagedTopic, positions: Positions) -> None:
        """Raises InvalidRequest if no reader of the topic can have these positions."""
        reach = await self.upto(managed, positions)
        check_positions(managed.name, managed.nodes(), positions, reach, managed.index.removed_intervals)

    async def check_read(self, managed: ManagedTopic, positions: Positions) -> None:
        """Raises InvalidRequest for a position beyond what a member can have been delivered.

        Segments that the topic does not have (any more) are left to the check of their owners. Where messages may be
        lost, a position beyond the end shows how many.
        """
        reach = await self.upto(managed, positions)
        nodes, lossy = managed.nodes(), managed.losses()
        known = {s: offset for s, offset in positions.items() if s in nodes and s not in lossy}
        problems = impossible_positions(managed.name, nodes, known, reach)
        if problems:
            raise InvalidRequest("; ".join(problems))

    async def upto(self, managed: ManagedTopic, positions: Positions) -> dict[str, int]:
        """Up to which offset these living segments can have been read, by name, if less than in ``positions`` is known.

        A segment is left out if nobody is proved wrong: no replica says its end, the filer does not respond, or the
        segment is being sealed. The replica that seals it may have more than the others.
        """
        reconciler, layout = managed.reconciler, managed.layout
        if reconciler is None or layout is None:
            return {}
        living = {name: reconciler.watermarks.get(name, 0) for name in positions if name in layout}
        enough = {name: upto for name, upto in living.items() if positions[name] <= upto}
        beyond = [layout.segment(name) for name in living if name not in enough]
        said = await self.poll(managed, [segment for segment in beyond if not segment.successors])
        impossible = [name for name, upto in said.items() if positions[name] > upto]
        stored = await self._chain_ends(managed, impossible)
        confirmed = {
            name: max(upto, stored.get(name, 0))
            for name, upto in said.items()
            if name in stored or name not in impossible
        }
        return enough | confirmed

    async def _chain_ends(self, managed: ManagedTopic, segments: Collection[str]) -> dict[str, int]:
        """Where the chunks of these segments end in the filer, for those that can be read."""
        topic, found = managed.topic, dict[str, int]()
        if topic is None:
            return found

        async def read(name: str) -> None:
            try:
                found[name] = await self._store.run(_chain_end, topic.name, topic.uid, name)
            except SmqError as error:
                log.info("reach.chain_not_read", topic=topic.name, segment=name, message=error.message)

        with suppress(TimeoutError):
            async with asyncio.timeout(CHAIN_TIMEOUT_SECONDS):
                await asyncio.gather(*map(read, segments))
        return found

    async def poll(self, managed: ManagedTopic, segments: Collection[Segment]) -> dict[str, int]:
        """The same as the replicas of these segments say now: primaries, and followers of unresponsive ones."""
        found = await self._poll(managed, {s.name: s.replicas[:1] for s in segments})
        unresponsive = {
            s.name: s.replicas[1:] for s in segments if s.name not in found and s.durability is Durability.REPLICATED
        }
        return found | await self._poll(managed, unresponsive, of_followers=True)

    async def _poll(
        self, managed: ManagedTopic, replicas: Mapping[str, Collection[Replica]], *, of_followers: bool = False
    ) -> dict[str, int]:
        """All replicas are asked at once. A follower has at least every acked message, so the smallest end counts.

        A replica that answers without the segment has not opened it yet, or forgot it after its seal. So nobody has
        read more of it than was reported, or than its chunks have.
        """
        uid = managed.topic.uid if managed.topic is not None else ""
        known = managed.reconciler.watermarks if managed.reconciler is not None else {}
        polled = {r.incarnation: r for each in replicas.values() for r in each}
        found: dict[str, int] = {}
        for status in await asyncio.gather(*map(self._status, polled.values())):
            if status is None:
                continue
            reports = {report.segment: report for report in status.segments if report.uid == uid}
            for name in (n for n, each in replicas.items() if status.incarnation in {r.incarnation for r in each}):
                report = reports.get(name)
                if report is None:
                    upto = known.get(name, 0)
                else:
                    upto = max(report.watermark, report.end if of_followers else report.chain_end)
                    if managed.reconciler is not None:
                        managed.reconciler.observe_watermark(name, report.watermark)
                found[name] = min(upto, found.get(name, upto))
        return found

    async def _status(self, replica: Replica) -> pb.BrokerStatus | None:
        """Its answer to a question that is sent after this call; None without one."""
        waiting = self._questions.get(replica.incarnation)
        if waiting is None:
            waiting = self._questions[replica.incarnation] = asyncio.ensure_future(self._question(replica))
        return await asyncio.shield(waiting)

    async def _question(self, replica: Replica) -> pb.BrokerStatus | None:
        incarnation, loop = replica.incarnation, asyncio.get_running_loop()
        self._polled_at = {i: at for i, at in self._polled_at.items() if loop.time() - at < STATUS_PAUSE_SECONDS}
        if incarnation in self._polled_at:
            await asyncio.sleep(self._polled_at[incarnation] + STATUS_PAUSE_SECONDS - loop.time())
        self._polled_at[incarnation] = loop.time()
        del self._questions[incarnation]
        try:
            body = await self._brokers.call(replica, "status", Empty(), timeout=STATUS_TIMEOUT_SECONDS)
        except SmqError as error:
            log.info("reach.not_answered", broker=replica.broker, incarnation=incarnation, message=error.message)
            return None
        return pb.BrokerStatus.FromString(body)


def _chain_end(store: Store, topic: str, uid: str, segment: str) -> int:
    return ChunkChain(store, topic, uid, segment).end()
