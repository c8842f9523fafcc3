"""A simulated leader: ``TopicReconciler`` with its effects as tasks.

Two may run at once, and each may be killed between two effects. A leader gets reports from brokers, and termination
proofs from the supervisor (reaped processes, removed nodes).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from smq_core.errors import Conflict, SmqError
from smq_core.model.entities import Liveness, Replica
from smq_core.model.interval_set import contains
from smq_core.model.keyspace import KeyRange
from smq_core.model.partition_offsets import offsets_from_zero, with_sealed
from smq_core.reconcile.answers import (
    EffectFailed,
    IndexAppended,
    LayoutRead,
    LayoutWritten,
    ReplicaOpened,
    Sealed,
    TailFlushed,
)
from smq_core.reconcile.effects import AppendIndex, FlushAhead, OpenReplica, PutLayout, ReadLayout
from smq_core.reconcile.topic_reconciler import TopicReconciler
from smq_core.reconcile.topic_story import StoryEvent, TopicStory
from smq_core.scaling.placement import BrokerView
from smq_core.sealing.seal_coordinator import RequestSeal, SealFromFiler
from smq_operator.brokers import sealing
from smq_storage.catalog.sealed_index import IndexPage
from smq_storage.object_store.conditional_writes import RetryPolicy
from support.sim.engine.world import MS, SECOND, Process, Steps, World
from support.sim.filer import conditional_puts
from support.sim.filer.blocking_store import BlockingStore
from support.sim.filer.chunk_chain import INDEX, LAYOUT
from support.sim.leaders.group_host import GroupHost

if TYPE_CHECKING:
    from support.sim.histories.protocol import History

SUSPECT_AFTER = 2_500 * MS
SEAL_DEADLINE = 5 * SECOND
WARM_UP = 3 * SECOND


@dataclass(slots=True)
class LastReport:
    """A broker's last report, and its time on the leader's clock."""

    replica: Replica
    at: int
    leaving: bool
    held: int
    recovered: frozenset[str] = frozenset()
    """The former incarnations whose journals it has."""
    unresponsive: bool = False


class NotedStory(TopicStory):
    """The story of a leader's reconciler as a part of the history's story."""

    def __init__(self, world: World, process: Process) -> None:
        super().__init__()
        self._note = partial(world.note, process.name)

    def keep(self, event: StoryEvent) -> None:
        self._note(event.segment, str(event))


class SimulatedLeader:
    def __init__(self, history: History, address: str) -> None:
        self.history = history
        self.world = history.world
        self.network = history.network
        self.store = history.store
        self.checker = history.checker
        self.supervisor = history.supervisor
        self.address = address
        self.process = Process(self.world, address, self.world.unique(f"{address}."))
        self.process.node = self
        self.skew = 0
        self.machine = TopicReconciler(
            history.topic,
            unique=lambda: self.world.unique("w"),
            warm_up_until=self.clock() + WARM_UP,
            story=NotedStory(self.world, self.process),
        )
        self.last_reports: dict[str, LastReport] = {}
        self.groups = GroupHost(self)
        self.network.listening[address] = self.process
        self.process.start(self._run())

    def clock(self) -> int:
        return self.world.now + self.skew

    # ---- calls

    def on_report(self, report: tuple[Any, ...]) -> Steps:
        """Takes a broker's report. Returns whether the broker may leave, and the segments of the layout."""
        name, incarnation, address, leaving, held, watermarks, unresponsive, _, unwritten, recovered, _ = report
        self.last_reports[incarnation] = LastReport(
            Replica(name, incarnation, address), self.clock(), leaving, held, recovered
        )
        for segment, watermark in watermarks.items():
            self.machine.observe_watermark(segment, watermark)
        for peer in unresponsive:
            if peer in self.last_reports:
                self._request_status(self.last_reports[peer])
        layout = self.machine.layout
        if layout is None:  # no segments, or not known yet; then a leaving broker that holds nothing may go, too
            return leaving and not held, None
        holds = any(r.incarnation in {incarnation, *recovered} for s in layout.segments for r in s.replicas)
        # The layout may be one that was read late. The leader process does not let such a broker leave either.
        return leaving and not holds and not unwritten, {s.name for s in layout.segments}
        yield

    def on_join(self, group: str, member: str, generation: int) -> Steps:
        return (yield self.groups.call(("join", group, member, generation)))

    def on_commit(self, group: str, member: str, generation: int, positions: dict[str, int], epoch: str) -> Steps:
        return (yield self.groups.call(("commit", group, member, generation, positions, epoch)))

    # ---- the loop

    def _run(self) -> Steps:
        while True:
            self.step()
            yield self.world.between(*self.history.leader_pause)

    def step(self) -> None:
        for effect in self.machine.step(self.clock(), self.views()):
            if isinstance(effect, RequestSeal):
                self.checker.losses.seal_requested(effect, self.machine.watermarks.get(effect.segment))
            self.process.start(self._do(effect))

    def enqueue(self) -> None:
        """Steps again, because an answer arrived."""
        self.process.after(0, self.step)

    def views(self) -> dict[str, BrokerView]:
        views = {}
        newest: dict[str, str] = {}
        for incarnation, last in self.last_reports.items():
            newest[last.replica.broker] = incarnation
        layout = self.machine.layout
        replicas = {r.incarnation: r for s in layout.segments for r in s.replicas} if layout is not None else {}
        for incarnation, last in self.last_reports.items():
            replicas[incarnation] = last.replica
        for incarnation, replica in replicas.items():
            last_report = self.last_reports.get(incarnation)
            liveness = self._liveness(replica, last_report)
            if liveness is None:
                continue
            views[incarnation] = self.view(replica, liveness, last_report)
        return views

    def view(self, replica: Replica, liveness: Liveness, last_report: LastReport | None) -> BrokerView:
        leaving = last_report is not None and last_report.leaving
        return BrokerView(
            replica=replica,
            liveness=liveness,
            draining=leaving,
            segments=last_report.held if last_report is not None else 0,
        )

    def _liveness(self, replica: Replica, last_report: LastReport | None) -> Liveness | None:
        if self.supervisor.proves_gone(self.address, replica.incarnation):
            return Liveness.GONE
        newest = self._newest_process(replica)
        if newest is not None:
            if replica.incarnation not in newest.recovered:
                return Liveness.GONE
            alive = self._liveness(newest.replica, newest) is Liveness.ALIVE
            return Liveness.RECOVERED if alive else Liveness.ENDED
        if self.supervisor.proves_ended(self.address, replica.incarnation):
            return Liveness.ENDED
        if last_report is None:
            return None
        if last_report.unresponsive or self.clock() - last_report.at > SUSPECT_AFTER:
            return Liveness.SUSPECT
        return Liveness.ALIVE

    def _newest_process(self, replica: Replica) -> LastReport | None:
        """The last report of the newest process of this broker that is newer than this one, if there is any.

        It has all journals of former processes that are left.
        """
        if not self.history.journals.on:
            return None
        reports = self.last_reports.values()
        found = max((it for it in reports if it.replica.broker == replica.broker), key=_age_order, default=None)
        newer = found is not None and started_at(found.replica.incarnation) > started_at(replica.incarnation)
        return found if newer else None

    def _seal_address(self, replica: Replica) -> str:
        """The address of the process, or of the one that has its journal."""
        newest = self._newest_process(replica)
        return newest.replica.address if newest is not None else replica.address

    def _request_status(self, last: LastReport) -> None:
        def answered(answer: Any) -> None:
            last.unresponsive = answer.error is not None

        call = self.network.call(
            self.process, last.replica.address, "status", last.replica.incarnation, timeout=300 * MS
        )
        call.then(answered)

    # ---- effects

    def _do(self, effect: Any) -> Steps:
        try:
            answer = yield from self._answer(effect)
        except SmqError as error:
            answer = EffectFailed(effect, error)
        self.machine.handle(answer, self.clock())
        self.enqueue()

    def _answer(self, effect: Any) -> Steps:
        match effect:
            case ReadLayout():
                found = yield self.store.get(self.process, LAYOUT)
                return LayoutRead(*(found or (None, None)))
            case PutLayout():
                return (yield from self._put_layout(effect))
            case OpenReplica(segment, replica):
                yield self.network.call(self.process, replica.address, "open", segment, replica.incarnation)
                return ReplicaOpened(segment.name, replica.incarnation)
            case FlushAhead(segment):
                primary = segment.primary
                yield self.network.call(self.process, primary.address, "flush", segment.name, primary.incarnation)
                return TailFlushed(segment.name)
            case RequestSeal():
                return (yield from self._request_seal(effect))
            case SealFromFiler():
                return (yield from self._seal_from_filer(effect))
            case AppendIndex():
                return (yield from self._append_index(effect))

    def _put_layout(self, effect: PutLayout) -> Steps:
        layout = effect.layout
        result = yield from conditional_puts.put_conditionally(
            self.store, self.process, LAYOUT, layout, effect.etag, lambda it: it.writer == layout.writer
        )
        if not isinstance(result, conditional_puts.PutApplied):
            raise Conflict("another leader wrote the layout")
        return LayoutWritten(layout, result.etag)

    def _request_seal(self, effect: RequestSeal) -> Steps:
        outcome = yield self.network.call(
            self.process,
            self._seal_address(effect.replica),
            "seal",
            effect.segment,
            effect.replica.incarnation,
            effect.known_watermark,
            effect.accept_incomplete,
            timeout=SEAL_DEADLINE,
        )
        return Sealed(outcome)

    def _seal_from_filer(self, effect: SealFromFiler) -> Steps:
        store: Any = BlockingStore(self.store, self.process)
        topic, layout, retry_policy = self.machine.topic, self.machine.layout, RetryPolicy(5.0)
        assert layout is not None
        outcome = yield self.process.call(
            lambda: sealing.seal_from_filer(store, topic, layout, effect, self.process.name, retry_policy), "seals"
        )
        self.checker.record_outcome(outcome, self.process.name)
        return Sealed(outcome)

    def _append_index(self, effect: AppendIndex) -> Steps:
        """Appends entries, except existing and removed ones, and repeats that until the index has all of them."""
        names = tuple(entry.name for entry in effect.entries)
        while True:
            found = yield self.store.get(self.process, INDEX)
            before, etag = found if found is not None else (IndexPage(), None)
            known = {entry.name for entry in before.entries}
            new = [e for e in effect.entries if e.name not in known and not contains(before.removed, e.number)]
            if not new:
                return IndexAppended(names)
            entries = (*before.entries, *(replace(entry, bytes=entry.end) for entry in new))
            page = replace(before, writer=self.world.unique("i"), entries=entries)
            if effect.partitions:
                ring = before.partitions or offsets_from_zero(KeyRange(0, self.machine.topic.spec.partitions))
                page = replace(page, partitions=with_sealed(ring, [effect.partitions[entry.name] for entry in new]))
            yield from conditional_puts.put_conditionally(
                self.store, self.process, INDEX, page, etag, lambda it, page=page: it.writer == page.writer
            )


def _age_order(report: LastReport) -> int:
    return started_at(report.replica.incarnation)


def started_at(incarnation: str) -> int:
    """The order in which the processes of a broker started."""
    return int(incarnation.rpartition(".")[2])
