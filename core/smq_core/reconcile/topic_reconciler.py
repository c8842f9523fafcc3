"""The reconciler of one topic: compares desired state, layout and brokers, and returns the next effects.

It is level-triggered, and its memory may be lost: ``step`` may be called at any time, by any number of leaders. Answers
to effects come back as method calls (``layout_read``, ``layout_put``, ``opened``, ...). If a leader stops between two
effects, the next one reads the layout and continues. The layout's etag decides between two leaders. After a PUT that
failed, or whose outcome is unknown, the reconciler reads the layout again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from smq_core.model import layout_transitions as layouts
from smq_core.model.entities import (
    MILLISECOND,
    SECOND,
    Durability,
    Layout,
    Liveness,
    Micros,
    Phase,
    SealOutcome,
    Segment,
    Topic,
)
from smq_core.model.keyspace import KeyRange, split_evenly
from smq_core.model.layout_transitions import Successor
from smq_core.reconcile.effects import AppendIndex, Effect, FlushAhead, OpenReplica, PutLayout, ReadLayout
from smq_core.reconcile.open_backoff import OpenBackoff
from smq_core.reconcile.seal_planner import Decision, ManualRequest, plan_seals, validate_request
from smq_core.reconcile.segment_record import SegmentRecord
from smq_core.scaling.placement import BrokerView, Placer
from smq_core.scaling.topic_load import TopicLoad
from smq_core.sealing.seal_coordinator import SealBlocked, SealCoordinator

OPEN_RETRY_DELAY: Micros = 500 * MILLISECOND
STORE_RETRY_DELAY: Micros = 200 * MILLISECOND
SUCCESSOR_HEAD_START: Micros = SECOND
"""How long a seal waits until its successors are open and tails are written."""
RELEASE_DELAY: Micros = 150 * MILLISECOND
"""The pause after a seal before its cleanup. Its writers continue meanwhile, and need the same processes."""
MAX_REJECTED_REQUESTS = 100
RESYNC_AFTER: Micros = 30 * SECOND
"""The interval of reading the layout again, because a former leader's PUT may land after the first read."""
FOREIGN_BROKER_WARM_UP: Micros = 3 * SECOND
"""How long brokers on which another leader placed segments may need until they report here, too."""


@dataclass(slots=True)
class TopicReconciler:
    """See the module's docstring. ``unique`` returns a text that no other PUT of any leader has.

    A new leader decides nothing before ``warm_up_until``, unless every replica is registered, because the brokers need
    a moment to report to it.
    """

    topic: Topic
    unique: Callable[[], str]
    layout: Layout | None = None
    etag: str | None = None
    decisions: list[Decision] = field(default_factory=list)
    requests: list[ManualRequest] = field(default_factory=list)
    load: TopicLoad = field(default_factory=TopicLoad)
    warm_up_until: Micros = 0
    _layout_known: bool = False
    _layout_read_pending: bool = False
    _read_at: Micros = 0
    _layout_put_pending: bool = False
    rejected: dict[ManualRequest, str] = field(default_factory=dict)
    """The last requests that became impossible, and why."""
    _requests_in_flight: list[ManualRequest] = field(default_factory=list)
    """Requests that the layout of the current PUT carries out."""
    _layout_in_flight: Layout | None = None
    """The layout of the current PUT."""
    _index_append_pending: bool = False
    _records: dict[str, SegmentRecord] = field(default_factory=dict)
    """By name, in the order in which the segments became known."""
    _retry_at: Micros = 0
    _layout_superseded: bool = False
    """The layout that was read last is newer than the known one, so another leader wrote it."""
    _open_backoff: OpenBackoff = field(default_factory=OpenBackoff)

    # ---- views of the segments

    @property
    def blocked(self) -> dict[str, SealBlocked]:
        """The segments whose seal is blocked, and the replicas that block it."""
        sealings = ((name, record.sealing) for name, record in self._records.items())
        return {name: s.blocked for name, s in sealings if s is not None and s.blocked is not None}

    @property
    def watermarks(self) -> dict[str, int]:
        """Up to where messages are known to be acked, by segment."""
        return {name: it.watermark for name, it in self._records.items() if it.watermark is not None}

    def observe_watermark(self, segment: str, watermark: int) -> None:
        """A replica reported this watermark; a lower one than known changes nothing."""
        record = self._record(segment)
        if record.watermark is None or watermark > record.watermark:
            record.watermark = watermark

    # ---- effects

    @property
    def paused(self) -> bool:
        """True while load changes nothing. Failovers, drains, rolls and manual requests continue."""
        return self.load.paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        self.load.paused = paused

    def step(self, now: Micros, brokers: Mapping[str, BrokerView]) -> list[Effect]:
        """Returns the effects to start now. ``brokers`` is by incarnation; a missing one is suspect, not gone."""
        if not self._layout_known:
            if self._layout_read_pending or now < self._retry_at:
                return []
            self._layout_read_pending, self._read_at = True, now
            return [ReadLayout()]
        if self.layout is None:
            return self._create(now, brokers)
        if self.layout.deleted:
            return []  # the topic was deleted, and this leader has not seen that yet
        effects: list[Effect] = []
        if not self._layout_read_pending and not 0 <= now - self._read_at < RESYNC_AFTER:
            self._layout_read_pending, self._read_at = True, now
            effects.append(ReadLayout())
        effects += self._open(now, brokers)
        effects += self._seal(now, brokers)
        effects += self._index(now)
        if not self._layout_put_pending and now >= self._retry_at:
            effects += self._change(now, brokers)
        return effects

    def _create(self, now: Micros, brokers: Mapping[str, BrokerView]) -> list[Effect]:
        if self._layout_put_pending or now < self._retry_at:
            return []
        placer = Placer(brokers)
        spec = self.topic.spec
        parts = []
        for part in split_evenly(KeyRange(0, spec.partitions), spec.min_segments):
            placed = placer.place(spec.durability, spec.replicas)
            if placed is None:
                return []
            replica_count = 1 if spec.durability is Durability.STORED else spec.replicas
            if now < self.warm_up_until and len(placed.replicas) < replica_count:
                return []
            parts.append(Successor(part, placed.replicas, placed.durability))
        self._layout_put_pending = True
        made = layouts.create(self.topic.name, self.topic.uid, spec.partitions, parts, now=now, writer=self.unique())
        self._record_decision(now, "create", tuple(s.name for s in made.segments), "the topic is new")
        return [PutLayout(made, None)]

    def _open(self, now: Micros, brokers: Mapping[str, BrokerView]) -> list[Effect]:
        assert self.layout is not None
        effects: list[Effect] = []
        for segment in self.layout.segments:
            if segment.successors:
                continue
            record = self._record(segment.name)
            if record.fully_opened:
                continue
            if all(record.has_opened(replica.incarnation) for replica in segment.replicas):
                record.fully_opened = True
                continue
            for replica in segment.replicas:
                broker = brokers.get(replica.incarnation)
                opening = record.opening(replica.incarnation)
                if opening.requested or opening.done or opening.refused or now < opening.retry_at:
                    continue
                if broker is None or broker.liveness is Liveness.GONE:
                    continue
                opening.requested = True
                effects.append(OpenReplica(segment, replica))
        return effects

    def _seal(self, now: Micros, brokers: Mapping[str, BrokerView]) -> list[Effect]:
        assert self.layout is not None
        liveness = liveness_lookup(brokers)
        to_seal = [segment for segment in self.layout.segments if segment.successors]
        effects = self._flush_ahead(to_seal, now, liveness)
        for segment in to_seal:
            record = self._record(segment.name)
            sealing = record.sealing
            assert sealing is not None
            if sealing.outcome is not None:
                if record.sealed_at is None:
                    record.sealed_at = now
                if now - record.sealed_at >= RELEASE_DELAY:
                    effects += sealing.release_requests(liveness)
                continue
            if not self._predecessors_sealed(segment):
                continue
            if not self._may_start_seal(segment, now, liveness):
                continue
            if segment.loss_accepted:
                sealing.accept_loss()
            known = (record.watermark, segment.known_watermark)
            sealing.known_watermark = max((it for it in known if it is not None), default=None)
            step = sealing.next_step(now, liveness)
            if step is not None and not isinstance(step, SealBlocked):
                effects.append(step)
        return effects

    def _flush_ahead(
        self, to_seal: Sequence[Segment], now: Micros, liveness: Callable[[str], Liveness]
    ) -> list[Effect]:
        """Begins the seals that the layout plans, and makes their primaries write their tails."""
        effects: list[Effect] = []
        for segment in to_seal:
            record = self._record(segment.name)
            if record.sealing is None:
                record.sealing, record.seal_started_at = SealCoordinator(segment), now
                if liveness(segment.primary.incarnation) is Liveness.ALIVE:
                    record.flushing_ahead = True
                    effects.append(FlushAhead(segment))
        return effects

    def _predecessors_sealed(self, segment: Segment) -> bool:
        """False while a predecessor accepts batches.

        A segment that never opened could be sealed at once. But its successors open when they see its seal, and must
        not do so while a predecessor of it still accepts batches.
        """
        assert self.layout is not None
        return all(self.outcome(p) is not None for p in segment.predecessors if p in self.layout)

    def _may_start_seal(self, segment: Segment, now: Micros, liveness: Callable[[str], Liveness]) -> bool:
        """True once successors are open and tails are written, so that writers continue without a pause.

        Segments that are merged wait for each other's tails, because all their writers pause until the last segment
        is sealed. ``SUCCESSOR_HEAD_START`` limits the wait.
        """
        assert self.layout is not None
        if now - self._record(segment.name).seal_started_at >= SUCCESSOR_HEAD_START:
            return True
        successors = [self.layout.segment(name) for name in segment.successors]
        merged = (self._records.get(name) for successor in successors for name in successor.predecessors)
        if any(record is not None and record.flushing_ahead for record in merged):
            return False
        for successor in successors:
            if successor.successors:
                continue
            for replica in successor.replicas:
                opened = self.has_opened(successor.name, replica.incarnation)
                if not opened and liveness(replica.incarnation) is Liveness.ALIVE:
                    return False
        return True

    def _index(self, now: Micros) -> list[Effect]:
        """Appends sealed segments to the index before they leave the layout."""
        assert self.layout is not None
        releasable = {
            name
            for name, record in self._records.items()
            if record.sealed_at is not None and now - record.sealed_at >= RELEASE_DELAY
        }
        leaving = {name for name in layouts.activatable(self.layout, releasable) if not self._records[name].indexed}
        if not leaving or self._index_append_pending or now < self._retry_at:
            return []
        self._index_append_pending = True
        entries = [layouts.sealed_entry(self.layout.segment(name), self._outcomes()[name], now) for name in leaving]
        return [AppendIndex(tuple(sorted(entries, key=lambda e: e.number)))]

    def _change(self, now: Micros, brokers: Mapping[str, BrokerView]) -> list[Effect]:
        """Combines every change in one PUT: sealed segments leave the layout, new plans enter it."""
        assert self.layout is not None
        layout = self.layout
        done = {name for name in self._outcomes() if self._records[name].indexed}
        leaving = layouts.activatable(layout, done)
        if leaving:
            layout = layouts.activate(layout, leaving, writer=self.unique())
        losses = {
            s.name: record.watermark
            for s in layout.segments
            if (record := self._record(s.name)).loss_to_accept and not s.loss_accepted
        }
        if losses:
            layout = layouts.accept_losses(layout, losses, writer=self.unique())
            self._record_decision(
                now,
                "accept loss",
                tuple(sorted(losses)),
                "an administrator accepted the loss of messages on unreachable replicas",
            )
        known = _all_replicas_registered(layout, brokers)
        if self._layout_superseded and not known:  # a leader that sees fewer brokers must not undo the other's changes
            self.warm_up_until = max(self.warm_up_until, now + FOREIGN_BROKER_WARM_UP)
        self._layout_superseded = False
        if now < self.warm_up_until and not known:
            brokers = {}
        refused = [
            (name, incarnation)
            for name, record in self._records.items()
            for incarnation, opening in record.openings.items()
            if opening.refused
        ]
        requested = self.requests
        plans, decisions, followed = plan_seals(
            self.topic.spec,
            layout,
            brokers,
            self.requests,
            refused=refused,
            cooling_down=self._open_backoff.cooling_down(now),
            changes=self.load.changes(self.topic.spec, layout, brokers, now),
            now=now,
        )
        self.requests = followed.waiting
        for request, why in followed.rejected.items():
            self._reject_request(now, request, why)
        if plans:
            layout = layouts.plan(layout, plans, now=now, writer=self.unique())
            for decision in decisions:
                self.decisions.append(replace(decision, topic=self.topic.name))
            del self.decisions[:-100]
        if layout is self.layout:
            return []
        self._layout_put_pending = True
        self._requests_in_flight = [r for r in requested if r not in self.requests and r not in followed.rejected]
        self._layout_in_flight = replace(layout, version=self.layout.version + 1)
        return [PutLayout(self._layout_in_flight, self.etag)]

    # ---- answers

    def layout_read(self, found: tuple[Layout, str] | None) -> None:
        """The filer's layout and its etag, or None when there is none yet.

        A layout that is older than the known one is ignored, because the filer may return a former version.
        """
        self._layout_read_pending = False
        if self.layout is not None and (found is None or found[0].version < self.layout.version):
            return
        self._layout_known = True
        self._layout_superseded = (
            self.layout is not None and found is not None and found[0].version > self.layout.version
        )
        self.layout, self.etag = found if found is not None else (None, None)
        self._prune()

    def read_failed(self, now: Micros) -> None:
        self._layout_read_pending = False
        self._retry_at = now + STORE_RETRY_DELAY

    def layout_put(self, layout: Layout, etag: str) -> None:
        self._layout_put_pending, self._layout_in_flight = False, None
        self._requests_in_flight = []
        self.layout, self.etag = layout, etag
        self._prune()

    def layout_put_failed(self, now: Micros, *, unclear: bool = False) -> None:
        """Another leader's PUT came first, or the outcome is unknown: the next step reads the layout again."""
        self._layout_put_pending, self._layout_in_flight = False, None
        self.requests, self._requests_in_flight = self._requests_in_flight + self.requests, []
        self._layout_known = False
        self._retry_at = now + STORE_RETRY_DELAY if unclear else now

    def opened(self, segment: str, incarnation: str) -> None:
        """This incarnation hosts the segment."""
        opening = self._record(segment).opening(incarnation)
        opening.requested, opening.done = False, True
        self._open_backoff.opened(incarnation)

    @property
    def layout_known(self) -> bool:
        """True once the layout was read, or was found not to exist yet."""
        return self._layout_known

    @property
    def is_idle(self) -> bool:
        """True if nothing is requested or under way, so that only load, age or the brokers can lead to effects."""
        if (
            not self._layout_known
            or self.layout is None
            or self._layout_put_pending
            or self._index_append_pending
            or self.requests
            or any(record.loss_to_accept for record in self._records.values())
        ):
            return False
        for s in self.layout.segments:
            if s.phase is not Phase.OPEN or s.successors or not self._record(s.name).fully_opened:
                return False
        return True

    def has_opened(self, segment: str, incarnation: str) -> bool:
        """True if this incarnation reported that it hosts the segment."""
        record = self._records.get(segment)
        return record is not None and record.has_opened(incarnation)

    def open_failed(self, segment: str, incarnation: str, now: Micros, *, refused: bool) -> None:
        """The call failed. With ``refused`` the process will never open the segment, which must move elsewhere."""
        opening = self._record(segment).opening(incarnation)
        opening.requested, opening.retry_at, opening.refused = False, now + OPEN_RETRY_DELAY, refused
        if refused:
            self._open_backoff.refused(incarnation, now)

    def replica_fenced(self, segment: str, incarnation: str, now: Micros) -> bool:
        """This replica fenced the segment by itself, because it cannot serve it. It moves elsewhere.

        False if that was known.
        """
        if self._record(segment).opening(incarnation).refused:
            return False
        self.open_failed(segment, incarnation, now, refused=True)
        return True

    def flushed(self, segment: str) -> None:
        """Its primary has written its tail, or failed to."""
        if segment in self._records:
            self._records[segment].flushing_ahead = False

    def sealed(self, outcome: SealOutcome) -> None:
        sealing = self._sealing(outcome.segment)
        if sealing is not None:
            sealing.sealed(outcome)

    def seal_refused(self, segment: str, incarnation: str, now: Micros, *, not_hosted: bool = False) -> None:
        sealing = self._sealing(segment)
        if sealing is None:
            return
        if not_hosted:
            sealing.not_hosted(incarnation)
        else:
            sealing.refused(incarnation, now)

    def filer_seal_failed(self, segment: str, now: Micros) -> None:
        sealing = self._sealing(segment)
        if sealing is not None:
            sealing.filer_seal_failed(now)

    def accept_loss(self, segment: str) -> bool:
        """An administrator lets a blocked seal go on, once the layout records it for every later leader.

        False if the segment is not being sealed.
        """
        sealing = self._sealing(segment)
        if sealing is None or sealing.outcome is not None:
            return False
        self._record(segment).loss_to_accept = True
        return True

    def is_loss_accepted(self, segment: str) -> bool:
        """True if an administrator accepted the loss, whether the layout records it yet or not."""
        record, sealing = self._records.get(segment), self._sealing(segment)
        return (record is not None and record.loss_to_accept) or (sealing is not None and sealing.loss_accepted)

    def submit_request(self, request: ManualRequest) -> None:
        """Takes a manual request. Repeating one that is pending changes nothing.

        Raises ValueError, with a message for the user, if it is impossible or conflicts with another request.
        """
        if self.is_pending(request):
            return
        if self.layout is None:
            raise ValueError(f"topic {self.topic.name} has no segments yet")
        validate_request(self.layout, request)
        if self._layout_in_flight is not None:
            validate_request(self._layout_in_flight, request)
        if any(set(request.segments) & set(other.segments) for other in self.requests):
            raise ValueError(f"another request for {', '.join(request.segments)} is pending already: wait for it")
        self.rejected.pop(request, None)
        self.requests.append(request)

    def is_pending(self, request: ManualRequest) -> bool:
        """True from the request until the layout carries it out, or it is rejected."""
        return request in self.requests or request in self._requests_in_flight

    def is_requested(self, request: ManualRequest) -> bool:
        """True while a request of the same action for its first segment is pending."""
        waiting = (r for r in (*self.requests, *self._requests_in_flight) if r.action == request.action)
        return any(request.segments[0] in other.segments for other in waiting)

    def indexed(self, names: Sequence[str]) -> None:
        self._index_append_pending = False
        for name in names:
            self._record(name).indexed = True

    def append_index_failed(self, now: Micros) -> None:
        self._index_append_pending = False
        self._retry_at = now + STORE_RETRY_DELAY

    def sealed_count(self) -> int:
        """The number of segments of the layout that are known to be sealed."""
        return len(self._outcomes())

    def outcome(self, segment: str) -> SealOutcome | None:
        sealing = self._sealing(segment)
        return sealing.outcome if sealing is not None else None

    # ---- inside

    def _record(self, segment: str) -> SegmentRecord:
        """The record of that segment; a new one if it is not known yet."""
        return self._records.setdefault(segment, SegmentRecord())

    def _sealing(self, segment: str) -> SealCoordinator | None:
        record = self._records.get(segment)
        return record.sealing if record is not None else None

    def _outcomes(self) -> dict[str, SealOutcome]:
        sealings = ((name, record.sealing) for name, record in self._records.items())
        return {name: s.outcome for name, s in sealings if s is not None and s.outcome is not None}

    def _prune(self) -> None:
        """Forgets the segments that left the layout."""
        layout = self.layout
        self._records = {name: it for name, it in self._records.items() if layout is not None and name in layout}

    def _reject_request(self, now: Micros, request: ManualRequest, why: str) -> None:
        self.rejected[request] = why
        while len(self.rejected) > MAX_REJECTED_REQUESTS:
            del self.rejected[next(iter(self.rejected))]
        text = f"the manual {request.action} is no longer possible: {why}"
        self._record_decision(now, "refused", request.segments, text)

    def _record_decision(self, now: Micros, action: str, segments: tuple[str, ...], reason: str) -> None:
        self.decisions.append(Decision(now, self.topic.name, action, segments, reason))


def liveness_lookup(brokers: Mapping[str, BrokerView]) -> Callable[[str], Liveness]:
    """Returns a function that maps an incarnation to its liveness; an unknown one is suspect."""

    def of(incarnation: str) -> Liveness:
        broker = brokers.get(incarnation)
        return broker.liveness if broker is not None else Liveness.SUSPECT

    return of


def _all_replicas_registered(layout: Layout, brokers: Mapping[str, BrokerView]) -> bool:
    return all(r.incarnation in brokers for s in layout.segments for r in s.replicas)


def writable_segments(layout: Layout) -> list[Segment]:
    """The segments that producers write to now or soon: those without successors."""
    return [s for s in layout.segments if s.phase in (Phase.OPEN, Phase.PENDING) and not s.successors]
