"""Deleted topics end: their segments are sealed where they are, so that nothing more is acked.

What is to be ended is in the filer: a record of the deletion that does not say ``sealed``, of a uid that is not the
living one of its name any more. So a leader that was stopped anywhere is followed by one that goes on. (A topic whose
manifest merely vanished keeps its name for a while; it may come back, and is left alone.)

First the layout is made the last one, by compare-and-swap: a PUT of it that was under way when the topic was deleted
lands before that or never, and a leader that does not know yet reads that nothing opens any more. The record says
``sealed`` when every segment of that layout has its seal chunk.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from smq_core.ending import REASON, Ending
from smq_core.errors import Conflict, NotHeld, SmqError, Unavailable
from smq_core.layout import end
from smq_core.model import Layout, Replica, SealOutcome, Topic, TopicSpec
from smq_core.sealing import AskReplica, Liveness, SealFromFiler
from smq_operator.effects import SEAL_TIMEOUT, BrokerCalls, seal_in_filer, seal_request
from smq_operator.lifecycle import retire
from smq_operator.loop import LeaderLoop
from smq_operator.topic import TopicRun
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import outcome_from_pb
from smq_storage import layouts
from smq_storage.chain import Chain
from smq_storage.conditional import Patience
from smq_storage.retired import list_retired, mark_sealed, read_retired
from smq_storage.store import Store
from smq_storage.topics import read_current, read_topic

log = structlog.get_logger()

LOOK_EVERY = 10.0
AGAIN_AFTER = 0.5
TICK = 0.1


@dataclass(slots=True)
class _Under:
    """One topic that is being ended. ``done`` is set when it is, or when there is nothing to be ended."""

    name: str
    uid: str
    done: asyncio.Event = field(default_factory=asyncio.Event)
    ending: Ending | None = None
    problem: str = ""


class Endings:
    """See the module's docstring. Use it on the event loop."""

    def __init__(self, loop: LeaderLoop, brokers: BrokerCalls, patience: Patience) -> None:
        self._loop = loop
        self._brokers = brokers
        self._patience = patience
        self._under: dict[str, _Under] = {}
        self._ended: set[str] = set()
        self.looked = False
        """True when this leader has seen which topics earlier ones have still to end."""
        self._looked_when_settled = False
        loop.on_removed.append(self.removed)

    async def keep(self) -> None:
        """Goes on with what an earlier leader began, and with what failed; runs for as long as this leader leads."""
        while True:
            settled = self._loop.settled
            try:
                for name, uid in await self._loop.effects.in_pool(_unsealed, self._loop.store, self._ended):
                    self.begin(name, uid)
                self.looked = True
                # A listing may be older than the record of a deletion that an earlier leader has just answered.
                self._looked_when_settled = self._looked_when_settled or settled
            except SmqError as error:
                log.warning("endings.unknown", error=error.code, message=error.message)
            await asyncio.sleep(LOOK_EVERY if self._looked_when_settled else AGAIN_AFTER)

    def begin(self, name: str, uid: str) -> None:
        """Ends this topic, which is deleted, beside the loop. Repeating it is harmless."""
        if uid not in self._under and not self._lives(uid):
            it = self._under[uid] = _Under(name, uid)
            self._loop.spawn(self._end(it))

    def removed(self, run: TopicRun) -> None:
        """A topic is wished no more. Where the world gives uids it never comes back under this one."""
        if run.topic is not None and run.wish.uid == run.topic.uid:
            self.begin(run.name, run.topic.uid)

    def of(self, name: str) -> str | None:
        """The uid of the topic of that full name that is being ended now."""
        return next((it.uid for it in self._under.values() if it.name == name), None)

    def keeps(self, incarnation: str) -> bool:
        """True while this incarnation may hold messages of a deleted topic that no seal chunk covers yet.

        So it is of all of them while it is not known what is to be ended.
        """
        if not self._looked_when_settled:
            return True
        for it in self._under.values():
            if it.ending is None:
                return True
            unsealed = set(it.ending.unsealed)
            for segment in it.ending.layout.segments:
                if segment.name in unsealed and incarnation in {r.incarnation for r in segment.replicas}:
                    return True
        return False

    async def wait(self, uid: str, timeout: float) -> None:
        """Returns when no broker acks anything of it any more. Raises Unavailable after ``timeout`` seconds."""
        it = self._under.get(uid)
        if it is None:
            return
        try:
            async with asyncio.timeout(timeout):
                await it.done.wait()
        except TimeoutError:
            raise Unavailable(_still(it)) from None

    # ---- inside

    async def _end(self, it: _Under) -> None:
        try:
            while not self._lives(it.uid):
                try:
                    await self._once(it)
                    break
                except SmqError as error:
                    it.problem = error.message
                    log.warning("topic.ending.failed", topic=it.name, uid=it.uid, message=error.message)
                except Exception as error:
                    it.problem = f"unexpected: {error}"
                    log.exception("topic.ending.failed", topic=it.name, uid=it.uid)
                await asyncio.sleep(AGAIN_AFTER)
            it.done.set()
        finally:
            del self._under[it.uid]

    async def _once(self, it: _Under) -> None:
        in_pool, store = self._loop.effects.in_pool, self._loop.store
        await in_pool(retire, store, it.name, it.uid, self._patience, self._loop.now())
        topic, layout = await in_pool(_end_layout, store, it.name, it.uid, self._patience)
        if layout is not None:
            it.ending = Ending(layout)
            await self._seal(it, it.ending, topic)
        if self._lives(it.uid):
            return
        await in_pool(mark_sealed, store, it.uid, self._patience)
        self._ended.add(it.uid)
        names = [segment.name for segment in layout.segments] if layout is not None else []
        log.info("topic.ended", topic=it.name, uid=it.uid, segments=sorted(names))

    async def _seal(self, it: _Under, ending: Ending, topic: Topic) -> None:
        """Until every segment of this layout is sealed."""
        layout = ending.layout
        for segment in layout.segments:
            if any(self._liveness(r) is not Liveness.ALIVE for r in segment.replicas):
                # Perhaps it was sealed long ago, and those who held it are no more.
                info = await self._loop.effects.in_pool(Chain(self._loop.store, it.name, it.uid, segment.name).seal)
                if info is not None:
                    ending.sealed(SealOutcome(segment.name, info.first, info.producers, info.lost))
        replicas = {r.incarnation: r for segment in layout.segments for r in segment.replicas}
        running: set[asyncio.Task[None]] = set()
        while ending.unsealed and not self._lives(it.uid):
            for step in ending.step(self._loop.now(), lambda name: self._liveness(replicas[name])):
                running.add(self._loop.spawn(self._carry_out(ending, topic, step)))
            if running:
                _, running = await asyncio.wait(running, timeout=TICK, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(TICK)
        for step in ending.step(self._loop.now(), lambda name: self._liveness(replicas[name])):
            self._loop.spawn(self._carry_out(ending, topic, step))  # the others let go; nobody waits for them

    async def _carry_out(self, ending: Ending, topic: Topic, step: AskReplica | SealFromFiler) -> None:
        name = step.segment
        try:
            if isinstance(step, SealFromFiler):
                me, store = self._loop.effects.me, self._loop.store
                outcome = await self._loop.effects.in_pool(
                    seal_in_filer, store, topic, name, me, step.known_watermark, self._patience
                )
            else:
                request = seal_request(topic, name, step.replica, REASON)
                body = await self._brokers.call(step.replica, "seal", request, timeout=SEAL_TIMEOUT)
                outcome = outcome_from_pb(pb.SealOutcome.FromString(body))
        except Exception as error:  # every step gets an answer, so that it is tried again
            code = error.code if isinstance(error, SmqError) else type(error).__name__
            log.warning("segment.end.failed", topic=topic.name, segment=name, error=code, message=str(error))
            if isinstance(step, SealFromFiler):
                ending.filer_failed(name, self._loop.now())
            else:
                held_not = isinstance(error, NotHeld)
                ending.refused(name, step.replica.incarnation, self._loop.now(), not_held=held_not)
        else:
            ending.sealed(outcome)

    def _lives(self, uid: str) -> bool:
        return any(
            uid in (run.wish.uid, run.topic.uid if run.topic is not None else None)
            for run in self._loop.topics.values()
        )

    def _liveness(self, replica: Replica) -> Liveness:
        """As the registry says; of one that it has forgotten, or never heard of, as the world proves."""
        known = self._loop.registry.get(replica.incarnation)
        if known is not None:
            return known.liveness(self._loop.now())
        if self._loop.world.proof_of_death(replica.incarnation) is not None:
            return Liveness.GONE
        outlived = self._loop.registry.outlived(replica, self._loop.now())
        return Liveness.GONE if outlived else Liveness.SUSPECT


def _end_layout(store: Store, name: str, uid: str, patience: Patience) -> tuple[Topic, Layout | None]:
    """Makes the layout the topic's last one. Raises StoreUnavailable."""
    topic = read_topic(store, name, uid) or Topic(name, uid, TopicSpec())
    while (found := layouts.read_layout(store, name, uid)) is not None:
        layout, etag = found
        if layout.ended:
            return topic, layout
        with suppress(Conflict):  # a leader that did not know yet was faster
            layouts.put_layout(store, end(layout, writer=uuid.uuid4().hex), etag, patience)
    return topic, None


def _unsealed(store: Store, ended: set[str]) -> list[tuple[str, str]]:
    """The deleted topics that are still to be ended: name and uid. ``ended`` gains those that need no more looking."""
    found = []
    for uid in list_retired(store):
        retired = read_retired(store, uid) if uid not in ended else None
        if retired is None:
            continue
        if retired.sealed:
            ended.add(uid)
            continue
        current = read_current(store, retired.topic)
        if current is not None and current[0] != uid:
            found.append((retired.topic, uid))
    return found


def _still(it: _Under) -> str:
    """What keeps a topic from ending, and what to do."""
    what = f"topic {it.name} is deleted, but not all of its segments are sealed yet"
    if it.ending is not None and it.ending.blocked:
        silent = sorted({name for blocked in it.ending.blocked.values() for name in blocked.waiting_for})
        what += (
            f": {', '.join(sorted(it.ending.blocked))} may still be written to at replicas that do not answer and are "
            f"not proved gone ({', '.join(silent)})"
        )
    elif it.problem:
        what += f": {it.problem}"
    return what + ". It goes on by itself; delete it again to wait for it, and let no producer write to it before"
