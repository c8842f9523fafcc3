"""A simulated leader: ``TopicLeader`` with its effects as tasks. Two may run at once; each may die between two effects.

It has reports of brokers, and proof of deaths from the supervisor (reaped processes, removed nodes).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from smq_core import sealer
from smq_core.effects import AppendIndex, FlushAhead, OpenReplica, PutLayout, ReadLayout
from smq_core.errors import NotHeld, SmqError, StoreUnavailable, WrongIncarnation
from smq_core.leading import TopicLeader
from smq_core.model import Replica
from smq_core.numbers import contains
from smq_core.placement import BrokerView
from smq_core.sealer import Held
from smq_core.sealing import AskReplica, Liveness, SealFromFiler
from smq_storage.index import IndexPage
from support.sim import conditional
from support.sim.chain import INDEX, LAYOUT, Chain
from support.sim.grouping import GroupHost
from support.sim.world import MS, SECOND, Process, Steps

if TYPE_CHECKING:
    from support.sim.history import History

SUSPECT_AFTER = 2_500 * MS
SEAL_DEADLINE = 5 * SECOND
SETTLES = 3 * SECOND


@dataclass(slots=True)
class Heard:
    """What a broker told last, and when on the leader's clock."""

    replica: Replica
    at: int
    leaving: bool
    held: int
    silent: bool = False


class Leader:
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
        self.machine = TopicLeader(
            history.topic, unique=lambda: self.world.unique("w"), settles_at=self.clock() + SETTLES
        )
        self.heard: dict[str, Heard] = {}
        self.groups = GroupHost(self)
        self.network.listening[address] = self.process
        self.process.start(self._run())

    def clock(self) -> int:
        return self.world.now + self.skew

    # ---- calls

    def on_report(self, report: tuple[Any, ...]) -> Steps:
        """A broker's news. Answers whether it may leave, and the segments that the layout names."""
        name, incarnation, address, leaving, held, watermarks, silent, _ = report
        self.heard[incarnation] = Heard(Replica(name, incarnation, address), self.clock(), leaving, held)
        for segment, watermark in watermarks.items():
            known = self.machine.watermarks.get(segment, 0)
            self.machine.watermarks[segment] = max(known, watermark)
        for peer in silent:
            if peer in self.heard:
                self._ask_status(self.heard[peer])
        layout = self.machine.layout
        if layout is None:  # no segments, or not known yet; then a leaving broker that holds nothing may go, too
            return leaving and not held, None
        holds = any(r.incarnation == incarnation for s in layout.segments for r in s.replicas)
        return leaving and not holds, {s.name for s in layout.segments}
        yield

    def on_join(self, group: str, member: str, generation: int) -> Steps:
        return (yield self.groups.ask(("join", group, member, generation)))

    def on_commit(self, group: str, member: str, generation: int, positions: dict[str, int]) -> Steps:
        return (yield self.groups.ask(("commit", group, member, generation, positions)))

    # ---- the loop

    def _run(self) -> Steps:
        while True:
            self.step()
            yield self.world.between(*self.history.leader_pause)

    def step(self) -> None:
        for effect in self.machine.step(self.clock(), self.views()):
            if not isinstance(effect, ReadLayout):
                self.world.tell(self.process.name, "", _words(effect))
            self.process.start(self._do(effect))

    def kick(self) -> None:
        """Something was answered: look again."""
        self.process.after(0, self.step)

    def views(self) -> dict[str, BrokerView]:
        views = {}
        newest: dict[str, str] = {}
        for incarnation, heard in self.heard.items():
            newest[heard.replica.broker] = incarnation
        layout = self.machine.layout
        replicas = {r.incarnation: r for s in layout.segments for r in s.replicas} if layout is not None else {}
        for incarnation, heard in self.heard.items():
            replicas[incarnation] = heard.replica
        for incarnation, replica in replicas.items():
            told = self.heard.get(incarnation)
            liveness = self._liveness(incarnation, told)
            if liveness is None:
                continue
            views[incarnation] = self.view(replica, liveness, told)
        return views

    def view(self, replica: Replica, liveness: Liveness, told: Heard | None) -> BrokerView:
        leaving = told is not None and told.leaving
        return BrokerView(replica, liveness, draining=leaving, segments=told.held if told is not None else 0)

    def _liveness(self, incarnation: str, told: Heard | None) -> Liveness | None:
        if self.supervisor.proves_gone(self.address, incarnation):
            return Liveness.GONE
        if told is None:
            return None
        if told.silent or self.clock() - told.at > SUSPECT_AFTER:
            return Liveness.SUSPECT
        return Liveness.ALIVE

    def _ask_status(self, heard: Heard) -> None:
        def answered(answer: Any) -> None:
            heard.silent = answer.error is not None

        call = self.network.call(
            self.process, heard.replica.address, "status", heard.replica.incarnation, timeout=300 * MS
        )
        call.then(answered)

    # ---- effects

    def _do(self, effect: Any) -> Steps:
        match effect:
            case ReadLayout():
                yield from self._read_layout()
            case PutLayout():
                yield from self._put_layout(effect)
            case OpenReplica():
                yield from self._open(effect)
            case FlushAhead(segment):
                primary = segment.primary
                call = self.network.call(self.process, primary.address, "flush", segment.name, primary.incarnation)
                with suppress(SmqError):
                    yield call
                self.machine.flushed(segment.name)
            case AskReplica():
                yield from self._ask(effect)
            case SealFromFiler():
                yield from self._seal_from_filer(effect)
            case AppendIndex():
                yield from self._append_index(effect)
        self.kick()

    def _read_layout(self) -> Steps:
        try:
            found = yield self.store.get(self.process, LAYOUT)
        except StoreUnavailable:
            self.machine.read_failed(self.clock())
        else:
            self.machine.layout_read(found)

    def _put_layout(self, effect: PutLayout) -> Steps:
        layout = effect.layout
        put = conditional.settle(
            self.store, self.process, LAYOUT, layout, effect.etag, lambda it: it.writer == layout.writer
        )
        try:
            result = yield from put
        except StoreUnavailable:
            self.machine.layout_lost(self.clock(), unclear=True)
            return
        if isinstance(result, conditional.Written):
            self.world.tell(self.process.name, "", f"layout {layout.version} is put")
            self.machine.layout_put(layout, result.etag)
        else:
            self.machine.layout_lost(self.clock())

    def _open(self, effect: OpenReplica) -> Steps:
        name, replica = effect.segment.name, effect.replica
        try:
            yield self.network.call(self.process, replica.address, "open", effect.segment, replica.incarnation)
        except SmqError as error:
            refused = isinstance(error, NotHeld | WrongIncarnation)
            self.machine.open_failed(name, replica.incarnation, self.clock(), refused=refused)
        else:
            self.machine.opened(name, replica.incarnation)

    def _ask(self, effect: AskReplica) -> Steps:
        name, replica = effect.segment, effect.replica
        call = self.network.call(
            self.process, replica.address, "seal", name, replica.incarnation, timeout=SEAL_DEADLINE
        )
        try:
            outcome = yield call
        except SmqError as error:
            self.machine.seal_refused(name, replica.incarnation, self.clock(), not_held=isinstance(error, NotHeld))
        else:
            self.machine.sealed(outcome)

    def _seal_from_filer(self, effect: SealFromFiler) -> Steps:
        chain = Chain(self.store, self.process, effect.segment)
        steps = sealer.seal(effect.segment, Held(), known_watermark=effect.known_watermark)
        try:
            outcome = yield from chain.drive(steps)
        except StoreUnavailable:
            self.machine.filer_seal_failed(effect.segment, self.clock())
        else:
            self.checker.told(outcome, self.process.name)
            self.machine.sealed(outcome)

    def _append_index(self, effect: AppendIndex) -> Steps:
        """Entries that are there already, or were removed, are passed over; repeated until all are in."""
        names = [entry.name for entry in effect.entries]
        try:
            while True:
                found = yield self.store.get(self.process, INDEX)
                before, etag = found if found is not None else (IndexPage(), None)
                known = {entry.name for entry in before.entries}
                new = [e for e in effect.entries if e.name not in known and not contains(before.removed, e.number)]
                if not new:
                    break
                entries = (*before.entries, *(replace(entry, bytes=entry.end) for entry in new))
                page = replace(before, writer=self.world.unique("i"), entries=entries)
                yield from conditional.settle(
                    self.store, self.process, INDEX, page, etag, lambda it, page=page: it.writer == page.writer
                )
        except StoreUnavailable:
            self.machine.index_failed(self.clock())
        else:
            self.machine.indexed(names)


def _words(effect: Any) -> str:
    match effect:
        case PutLayout(layout):
            parts = ", ".join(
                f"{s.name}:{s.phase}{'→' + '+'.join(s.successors) if s.successors else ''}"
                f"@{'/'.join(r.incarnation for r in s.replicas)}"
                for s in layout.segments
            )
            return f"puts layout {layout.version}: {parts}"
        case OpenReplica(segment, replica):
            return f"asks {replica.incarnation} to open {segment.name}"
        case AskReplica(segment, replica):
            return f"asks {replica.incarnation} to seal {segment}"
        case SealFromFiler(segment):
            return f"seals {segment} from the filer"
        case FlushAhead(segment):
            return f"asks for a flush of {segment.name}"
        case AppendIndex(entries):
            return f"indexes {', '.join(e.name for e in entries)}"
    return str(effect)
