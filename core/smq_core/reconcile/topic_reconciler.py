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
from smq_core.model.decision import Decision, DecisionAction
from smq_core.model.entities import (
    MILLISECOND,
    SECOND,
    Column,
    Durability,
    Layout,
    Liveness,
    Micros,
    Phase,
    SealOutcome,
    Topic,
    TopicSchema,
)
from smq_core.model.keyspace import KeyRange, split_evenly
from smq_core.model.layout_transitions import Successor
from smq_core.model.schema_evolution import evolve, schema_history
from smq_core.model.segment_changes import SegmentChange
from smq_core.reconcile.effects import AppendIndex, Effect, OpenReplica, PutLayout, ReadLayout
from smq_core.reconcile.open_backoff import OpenBackoff
from smq_core.reconcile.seal_planner import plan_seals
from smq_core.reconcile.seal_progress import entries_to_index, seal_effects
from smq_core.reconcile.segment_record import SegmentRecords
from smq_core.scaling.placement import BrokerView, Placer
from smq_core.scaling.topic_load import TopicLoad
from smq_core.sealing.seal_coordinator import SealBlocked

OPEN_RETRY_DELAY: Micros = 500 * MILLISECOND
STORE_RETRY_DELAY: Micros = 200 * MILLISECOND
MAX_REJECTED_REQUESTS = 100
# After a read of a known layout that failed. The file may be gone, and is noticed soon when it is back.
FAILED_READ_RETRY_DELAY: Micros = SECOND
# The interval of reading the layout again, because a former leader's PUT may land after the first read.
#
# This includes the PUT that creates the layout, because a leader without usable brokers never tries to create one.
RESYNC_AFTER: Micros = 30 * SECOND
# How long brokers on which another leader placed segments may need until they report here, too.
FOREIGN_BROKER_WARM_UP: Micros = 3 * SECOND


@dataclass(slots=True)
class TopicReconciler:
    """See the module's docstring. ``unique`` returns a text that no other PUT of any leader has.

    A new leader decides nothing before ``warm_up_until``, unless every replica is registered, because the brokers need
    a moment to report to it. ``topic.spec.schema`` is version 0 of the schema; ``columns`` are the desired ones, and
    ``generation`` counts the desired states where the platform does.
    """

    topic: Topic
    unique: Callable[[], str]
    layout: Layout | None = None
    etag: str | None = None
    decisions: list[Decision] = field(default_factory=list)
    requests: list[SegmentChange] = field(default_factory=list)
    load: TopicLoad = field(default_factory=TopicLoad)
    warm_up_until: Micros = 0
    columns: tuple[Column, ...] | None = None
    """None as long as the schema is to stay as it is."""
    generation: int = 0
    schema_problem: str | None = None
    """Why the desired columns cannot follow the newest version of the schema."""
    _layout_known: bool = False
    _layout_read_pending: bool = False
    _read_at: Micros = 0
    _layout_put_pending: bool = False
    rejected: dict[SegmentChange, str] = field(default_factory=dict)
    """The last requests that became impossible, and why."""
    _requests_in_flight: list[SegmentChange] = field(default_factory=list)
    """Requests that the layout of the current PUT carries out."""
    _layout_in_flight: Layout | None = None
    """The layout of the current PUT."""
    _index_append_pending: bool = False
    _records: SegmentRecords = field(default_factory=SegmentRecords)
    _retry_at: Micros = 0
    _layout_superseded: bool = False
    """The layout that was read last is newer than the known one, so another leader wrote it."""
    _open_backoff: OpenBackoff = field(default_factory=OpenBackoff)

    # ---- views of the segments

    @property
    def blocked(self) -> dict[str, SealBlocked]:
        """The segments whose seal is blocked, and the replicas that block it."""
        return self._records.blocked()

    @property
    def watermarks(self) -> dict[str, int]:
        """Up to where messages are known to be acked, by segment."""
        return self._records.watermarks()

    def observe_watermark(self, segment: str, watermark: int) -> None:
        """A replica reported this watermark; a lower one than known changes nothing."""
        record = self._records.of(segment)
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
        if self.layout is not None and self.layout.deleted:
            return []  # the topic was deleted, and this leader has not seen that yet
        effects: list[Effect] = []
        if not self._layout_read_pending and not 0 <= now - self._read_at < RESYNC_AFTER:
            self._layout_read_pending, self._read_at = True, now
            effects.append(ReadLayout())
        if self.layout is None:
            return effects + self._create(now, brokers)
        effects += self._open(now, brokers)
        effects += seal_effects(self.layout, self._records, now, liveness_lookup(brokers))
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
        made = layouts.create(
            self.topic.name,
            self.topic.uid,
            spec.partitions,
            parts,
            columns=spec.schema,
            now=now,
            writer=self.unique(),
        )
        self._record_decision(now, DecisionAction.CREATE, tuple(s.name for s in made.segments), "the topic is new")
        return [PutLayout(made, None)]

    def _open(self, now: Micros, brokers: Mapping[str, BrokerView]) -> list[Effect]:
        assert self.layout is not None
        effects: list[Effect] = []
        for segment in self.layout.segments:
            if segment.successors:
                continue
            record = self._records.of(segment.name)
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
                if broker is None or broker.liveness.terminated:
                    continue
                opening.requested = True
                effects.append(OpenReplica(segment, replica))
        return effects

    def _index(self, now: Micros) -> list[Effect]:
        """Appends sealed segments to the index before they leave the layout."""
        assert self.layout is not None
        if self._index_append_pending or now < self._retry_at:
            return []
        entries = entries_to_index(self.layout, self._records, now)
        if not entries:
            return []
        self._index_append_pending = True
        return [AppendIndex(entries)]

    def _change(self, now: Micros, brokers: Mapping[str, BrokerView]) -> list[Effect]:
        """Combines every change in one PUT: sealed segments leave the layout, new plans enter it."""
        assert self.layout is not None
        layout = self.layout
        done = {name for name in self._records.outcomes() if self._records.of(name).indexed}
        leaving = layouts.activatable(layout, done)
        if leaving:
            layout = layouts.activate(layout, leaving, writer=self.unique())
        losses = {
            s.name: record.watermark
            for s in layout.segments
            if (record := self._records.of(s.name)).loss_to_accept and not s.loss_accepted
        }
        if losses:
            layout = layouts.accept_losses(layout, losses, writer=self.unique())
            self._record_decision(
                now,
                DecisionAction.ACCEPT_LOSS,
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
            for name, record in self._records
            for incarnation, opening in record.openings.items()
            if opening.refused
        ]
        requested = self.requests
        schemas = self._desired_schemas(layout)
        plans, decisions, followed = plan_seals(
            self.topic.spec,
            layout,
            brokers,
            self.requests,
            refused=refused,
            cooling_down=self._open_backoff.cooling_down(now),
            changes=self.load.changes(self.topic.spec, layout, brokers, now),
            schemas=schemas,
            sealed=self._records.outcomes(),
            now=now,
        )
        self.requests = followed.waiting
        for request, why in followed.rejected.items():
            self._reject_request(now, request, why)
        if plans or decisions:
            layout = layouts.plan(layout, plans, schemas=schemas, now=now, writer=self.unique())
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
        self._records.prune(self.layout)

    def read_failed(self, now: Micros) -> None:
        self._layout_read_pending = False
        self._retry_at = now + STORE_RETRY_DELAY
        self._read_at = now + FAILED_READ_RETRY_DELAY - RESYNC_AFTER

    def layout_put(self, layout: Layout, etag: str) -> None:
        self._layout_put_pending, self._layout_in_flight = False, None
        self._requests_in_flight = []
        self.layout, self.etag = layout, etag
        self._records.prune(self.layout)

    def layout_put_failed(self, now: Micros, *, unclear: bool = False) -> None:
        """Another leader's PUT came first, or the outcome is unknown: the next step reads the layout again."""
        self._layout_put_pending, self._layout_in_flight = False, None
        self.requests, self._requests_in_flight = self._requests_in_flight + self.requests, []
        self._layout_known = False
        self._retry_at = now + STORE_RETRY_DELAY if unclear else now

    def opened(self, segment: str, incarnation: str) -> None:
        """This incarnation hosts the segment."""
        opening = self._records.of(segment).opening(incarnation)
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
            or any(record.loss_to_accept for _name, record in self._records)
        ):
            return False
        for s in self.layout.segments:
            if s.phase is not Phase.OPEN or s.successors or not self._records.of(s.name).fully_opened:
                return False
        return True

    def has_opened(self, segment: str, incarnation: str) -> bool:
        """True if this incarnation reported that it hosts the segment."""
        return self._records.has_opened(segment, incarnation)

    def open_failed(self, segment: str, incarnation: str, now: Micros, *, refused: bool) -> None:
        """The call failed. With ``refused`` the process will never open the segment, which must move elsewhere."""
        opening = self._records.of(segment).opening(incarnation)
        opening.requested, opening.retry_at, opening.refused = False, now + OPEN_RETRY_DELAY, refused
        if refused:
            self._open_backoff.refused(incarnation, now)

    def replica_fenced(self, segment: str, incarnation: str, now: Micros) -> bool:
        """This replica fenced the segment by itself, because it cannot serve it. It moves elsewhere.

        False if that was known.
        """
        if self._records.of(segment).opening(incarnation).refused:
            return False
        self.open_failed(segment, incarnation, now, refused=True)
        return True

    def flushed(self, segment: str) -> None:
        """Its primary has written its tail, or failed to."""
        record = self._records.known(segment)
        if record is not None:
            record.flushing_ahead = False

    def sealed(self, outcome: SealOutcome) -> None:
        sealing = self._records.sealing(outcome.segment)
        if sealing is not None:
            sealing.sealed(outcome)

    def seal_refused(self, segment: str, incarnation: str, now: Micros) -> None:
        sealing = self._records.sealing(segment)
        if sealing is not None:
            sealing.refused(incarnation, now)

    def not_hosted(self, segment: str, incarnation: str, *, certain: bool) -> None:
        """The replica that should seal the segment does not host it. ``certain`` is as in NotHosted."""
        sealing = self._records.sealing(segment)
        if sealing is not None:
            sealing.not_hosted(incarnation, certain=certain)

    def journal_incomplete(self, segment: str, incarnation: str, now: Micros, end: int, watermark: int = 0) -> None:
        """The process that recovered this replica's journal cannot have all of it; the journal ends at ``end``."""
        sealing = self._records.sealing(segment)
        if sealing is not None:
            sealing.journal_incomplete(incarnation, now, end, watermark)

    def filer_seal_failed(self, segment: str, now: Micros) -> None:
        sealing = self._records.sealing(segment)
        if sealing is not None:
            sealing.filer_seal_failed(now)

    def accept_loss(self, segment: str) -> bool:
        """An administrator lets a blocked seal go on, once the layout records it for every later leader.

        False if the segment is not being sealed.
        """
        sealing = self._records.sealing(segment)
        if sealing is None or sealing.outcome is not None:
            return False
        self._records.of(segment).loss_to_accept = True
        return True

    def is_loss_accepted(self, segment: str) -> bool:
        """True if an administrator accepted the loss, whether the layout records it yet or not."""
        record, sealing = self._records.known(segment), self._records.sealing(segment)
        return (record is not None and record.loss_to_accept) or (sealing is not None and sealing.loss_accepted)

    def submit_request(self, request: SegmentChange) -> None:
        """Takes a manual request. Repeating one that is pending changes nothing.

        Raises ValueError, with a message for the user, if it is impossible or conflicts with another request.
        """
        if self.is_pending(request):
            return
        if self.layout is None:
            raise ValueError(f"topic {self.topic.name} has no segments yet")
        request.validate(self.layout)
        if self._layout_in_flight is not None:
            request.validate(self._layout_in_flight)
        if any(set(request.segments) & set(other.segments) for other in self.requests):
            raise ValueError(f"another request for {', '.join(request.segments)} is pending already: wait for it")
        self.rejected.pop(request, None)
        self.requests.append(request)

    def is_pending(self, request: SegmentChange) -> bool:
        """True from the request until the layout carries it out, or it is rejected."""
        return request in self.requests or request in self._requests_in_flight

    def is_requested(self, request: SegmentChange) -> bool:
        """True while a request of the same action for its first segment is pending."""
        waiting = (r for r in (*self.requests, *self._requests_in_flight) if r.action == request.action)
        return any(request.segments[0] in other.segments for other in waiting)

    def indexed(self, names: Sequence[str]) -> None:
        self._index_append_pending = False
        for name in names:
            self._records.of(name).indexed = True

    def append_index_failed(self, now: Micros) -> None:
        self._index_append_pending = False
        self._retry_at = now + STORE_RETRY_DELAY

    def sealed_count(self) -> int:
        """The number of segments of the layout that are known to be sealed."""
        return len(self._records.outcomes())

    def outcome(self, segment: str) -> SealOutcome | None:
        return self._records.outcome(segment)

    # ---- inside

    def _desired_schemas(self, layout: Layout) -> tuple[TopicSchema, ...]:
        """The history of the topic's schema with the version that is desired now; empty if it has no schema."""
        history = schema_history(layout, self.topic.spec.schema)
        newest = history[-1]
        self.schema_problem = None
        if self.columns is not None:
            try:
                newest = evolve(newest, self.columns, self.topic.spec.key, self.generation)
            except ValueError as error:
                self.schema_problem = str(error)
        if not newest.columns:
            return ()
        return history if newest is history[-1] else (*history, newest)

    def _reject_request(self, now: Micros, request: SegmentChange, why: str) -> None:
        self.rejected[request] = why
        while len(self.rejected) > MAX_REJECTED_REQUESTS:
            del self.rejected[next(iter(self.rejected))]
        text = f"the manual {request.action} is no longer possible: {why}"
        self._record_decision(now, DecisionAction.REFUSED, request.segments, text)

    def _record_decision(self, now: Micros, action: DecisionAction, segments: tuple[str, ...], reason: str) -> None:
        self.decisions.append(Decision(at=now, topic=self.topic.name, action=action, segments=segments, reason=reason))


def liveness_lookup(brokers: Mapping[str, BrokerView]) -> Callable[[str], Liveness]:
    """Returns a function that maps an incarnation to its liveness; an unknown one is suspect."""

    def of(incarnation: str) -> Liveness:
        broker = brokers.get(incarnation)
        return broker.liveness if broker is not None else Liveness.SUSPECT

    return of


def _all_replicas_registered(layout: Layout, brokers: Mapping[str, BrokerView]) -> bool:
    return all(r.incarnation in brokers for s in layout.segments for r in s.replicas)
