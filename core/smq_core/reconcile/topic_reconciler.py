"""The reconciler of one topic: compares desired state, layout and brokers, and returns the next effects.

It is level-triggered, and its memory may be lost: ``step`` may be called at any time, by any number of leaders.
``handle`` takes the answers to effects, and the next step has the consequences. If a leader stops between two effects,
the next one reads the layout and continues. The layout's etag decides between two leaders. After a PUT that
failed, or whose outcome is unknown, the reconciler reads the layout again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from smq_core.errors import Conflict, InvalidRequest, NotHosted, Overloaded, StoreUnavailable, WrongIncarnation
from smq_core.model import layout_transitions as layouts
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.decision import Decision, DecisionAction
from smq_core.model.entities import (
    MILLISECOND,
    SECOND,
    Column,
    Durability,
    Layout,
    Micros,
    Phase,
    Segment,
    Topic,
    TopicSchema,
)
from smq_core.model.keyspace import KeyRange, split_evenly
from smq_core.model.layout_transitions import Successor
from smq_core.model.schema_evolution import evolve, schema_history
from smq_core.reconcile.answers import (
    Answer,
    ChangeRequested,
    EffectFailed,
    IndexAppended,
    LayoutRead,
    LayoutWritten,
    LossAccepted,
    ReplicaFenced,
    ReplicaOpened,
    Sealed,
    TailFlushed,
)
from smq_core.reconcile.effects import AppendIndex, Effect, FlushAhead, OpenReplica, PutLayout, ReadLayout
from smq_core.reconcile.opening_progress import OpenBackoff, opening_effects
from smq_core.reconcile.requested_changes import RequestedChanges
from smq_core.reconcile.seal_planner import plan_seals
from smq_core.reconcile.seal_progress import entries_to_index, seal_effects, sealed_partitions
from smq_core.reconcile.segment_record import SegmentRecords
from smq_core.reconcile.topic_story import TopicStory
from smq_core.scaling.placement import BrokerView, Placer
from smq_core.scaling.topic_load import TopicLoad
from smq_core.sealing.seal_coordinator import RequestSeal, SealBlocked, SealFromFiler

OPEN_RETRY_DELAY: Micros = 500 * MILLISECOND
# A broker whose memory is full that often does not get the segment.
MAX_OVERLOADED_TRIES = 4
STORE_RETRY_DELAY: Micros = 200 * MILLISECOND
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
    requests: RequestedChanges = field(default_factory=RequestedChanges)
    story: TopicStory = field(default_factory=TopicStory)
    """The last effects and answers."""
    load: TopicLoad = field(default_factory=TopicLoad)
    warm_up_until: Micros = 0
    columns: tuple[Column, ...] | None = None
    """None as long as the schema is to stay as it is."""
    generation: int = 0
    schema_problem: str | None = None
    """Why the desired columns cannot follow the newest version of the schema."""
    layout_known: bool = False
    """The layout was read, or was found not to exist yet."""
    _layout_read_pending: bool = False
    _read_at: Micros = 0
    layout_in_flight: Layout | None = None
    """The layout of the current PUT."""
    write_failure: str = ""
    """Why the last PUT failed because of the filer; empty after one that succeeded."""
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

    def step(self, now: Micros, brokers: Mapping[str, BrokerView]) -> list[Effect]:
        """Returns the effects to start now. ``brokers`` is by incarnation; a missing one is suspect, not gone."""
        effects = self._next_effects(now, brokers)
        for effect in effects:
            self.story.add(now, effect, self.layout)
        return effects

    def _next_effects(self, now: Micros, brokers: Mapping[str, BrokerView]) -> list[Effect]:
        if not self.layout_known:
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
        effects += opening_effects(self.layout, self._records, now, brokers)
        effects += seal_effects(self.layout, self._records, now, brokers)
        effects += self._index(now)
        if self.layout_in_flight is None and now >= self._retry_at:
            effects += self._change(now, brokers)
        return effects

    def _create(self, now: Micros, brokers: Mapping[str, BrokerView]) -> list[Effect]:
        if self.layout_in_flight is not None or now < self._retry_at:
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
        made = layouts.create(
            self.topic.name,
            self.topic.uid,
            spec.partitions,
            parts,
            columns=spec.schema,
            now=now,
            writer=self.unique(),
        )
        self.layout_in_flight = made
        self._record_decision(now, DecisionAction.CREATE, tuple(s.name for s in made.segments), "the topic is new")
        return [PutLayout(made, None)]

    def _index(self, now: Micros) -> list[Effect]:
        """Appends sealed segments to the index before they leave the layout."""
        assert self.layout is not None
        if self._index_append_pending or now < self._retry_at:
            return []
        entries = entries_to_index(self.layout, self._records, now)
        if not entries:
            return []
        self._index_append_pending = True
        has_offsets = self.topic.spec.has_kafka_offsets
        return [AppendIndex(entries, sealed_partitions(entries, self._records) if has_offsets else {})]

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
        schemas = self._desired_schemas(layout)
        plans, decisions, followed = plan_seals(
            self.topic.spec,
            layout,
            brokers,
            self.requests.waiting,
            refused=refused,
            cooling_down=self._open_backoff.cooling_down(now),
            changes=self.load.changes(self.topic.spec, layout, brokers, now),
            schemas=schemas,
            sealed=self._records.outcomes(),
            now=now,
        )
        carried_out = self.requests.follow(followed)
        for request, why in followed.rejected.items():
            text = f"the manual {request.action} is no longer possible: {why}"
            self._record_decision(now, DecisionAction.REFUSED, request.segments, text)
        if plans or decisions:
            layout = layouts.plan(layout, plans, schemas=schemas, now=now, writer=self.unique())
            for decision in decisions:
                self.decisions.append(replace(decision, topic=self.topic.name))
            del self.decisions[:-100]
        if layout is self.layout:
            return []
        self.requests.in_flight = carried_out
        self.layout_in_flight = replace(layout, version=self.layout.version + 1)
        return [PutLayout(self.layout_in_flight, self.etag)]

    # ---- answers

    def handle(self, answer: Answer, now: Micros) -> None:
        """Takes one answer. A late or repeated one does no harm.

        Raises ValueError, with a message for the user, if a request is impossible or conflicts with another one.
        """
        known = self.layout
        match answer:
            case LayoutRead(layout, etag):
                self._take_layout_read(layout, etag)
            case EffectFailed(ReadLayout()):
                self._layout_read_pending = False
                self._retry_at = now + STORE_RETRY_DELAY
                self._read_at = now + FAILED_READ_RETRY_DELAY - RESYNC_AFTER
            case LayoutWritten(layout, etag):
                self.layout_in_flight, self.write_failure, self.requests.in_flight = None, "", []
                self.layout, self.etag = layout, etag
                self._records.prune(layout)
            case EffectFailed(PutLayout(), error):
                self.layout_in_flight = None
                self.write_failure = error.message if isinstance(error, StoreUnavailable) else ""
                self.requests.put_failed()
                self.layout_known = False  # so the next step reads the layout, at once if another leader wrote it
                self._retry_at = now if isinstance(error, Conflict) else now + STORE_RETRY_DELAY
            case ReplicaOpened(name, incarnation):
                opening = self._records.of(name).opening(incarnation)
                opening.requested, opening.done = False, True
                self._open_backoff.opened(incarnation)
            case EffectFailed(OpenReplica(segment, replica), error):
                opening = self._records.of(segment.name).opening(replica.incarnation)
                opening.requested, opening.retry_at = False, now + OPEN_RETRY_DELAY
                opening.overloaded += isinstance(error, Overloaded)
                never = isinstance(error, NotHosted | WrongIncarnation | InvalidRequest)
                if never or opening.overloaded >= MAX_OVERLOADED_TRIES:
                    self._refuse(segment.name, replica.incarnation, now)
            case ReplicaFenced(name, incarnation):
                self._refuse(name, incarnation, now)
            case TailFlushed(name) | EffectFailed(FlushAhead(Segment(name=name))):
                if (record := self._records.known(name)) is not None:
                    record.flushing_ahead = False
            case Sealed(outcome):
                if (sealing := self._records.sealing(outcome.segment)) is not None:
                    sealing.sealed(outcome)
            case EffectFailed(RequestSeal() | SealFromFiler() as step, error):
                if (sealing := self._records.sealing(step.segment)) is not None:
                    sealing.failed(step, error, now)
            case IndexAppended(names):
                self._index_append_pending = False
                for name in names:
                    self._records.of(name).indexed = True
            case EffectFailed(AppendIndex()):
                self._index_append_pending = False
                self._retry_at = now + STORE_RETRY_DELAY
            case ChangeRequested(change):
                if self.layout is None:
                    raise ValueError(f"topic {self.topic.name} has no segments yet")
                self.requests.submit(change, self.layout, self.layout_in_flight)
            case LossAccepted(name):
                sealing = self._records.sealing(name)
                if sealing is None or sealing.outcome is not None:
                    raise ValueError(f"{name} is not being sealed: there is no loss to accept")
                self._records.of(name).loss_to_accept = True
        self.story.add(now, answer, known)

    def _take_layout_read(self, layout: Layout | None, etag: str | None) -> None:
        """Takes a layout, unless it is older than the known one, because the filer may return a former version."""
        self._layout_read_pending = False
        if self.layout is not None and (layout is None or layout.version < self.layout.version):
            return
        self.layout_known = True
        self._layout_superseded = (
            self.layout is not None and layout is not None and layout.version > self.layout.version
        )
        self.layout, self.etag = layout, etag
        self._records.prune(layout)

    def _refuse(self, segment: str, incarnation: str, now: Micros) -> None:
        """The incarnation will never serve the segment, which has to move elsewhere."""
        opening = self._records.of(segment).opening(incarnation)
        opening.requested, opening.refused = False, True
        self._open_backoff.refused(incarnation, now)

    # ---- what is known

    @property
    def is_idle(self) -> bool:
        """True if nothing is requested or under way, so that only load, age or the brokers can lead to effects."""
        if (
            not self.layout_known
            or self.layout is None
            or self.layout_in_flight is not None
            or self._index_append_pending
            or self.requests.waiting
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

    def has_refused(self, segment: str, incarnation: str) -> bool:
        """True if this incarnation will never serve the segment."""
        return self._records.of(segment).opening(incarnation).refused

    def is_loss_accepted(self, segment: str) -> bool:
        """True if an administrator accepted the loss, whether the layout records it yet or not."""
        record, sealing = self._records.known(segment), self._records.sealing(segment)
        return (record is not None and record.loss_to_accept) or (sealing is not None and sealing.loss_accepted)

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

    def _record_decision(self, now: Micros, action: DecisionAction, segments: tuple[str, ...], reason: str) -> None:
        self.decisions.append(Decision(at=now, topic=self.topic.name, action=action, segments=segments, reason=reason))


def _all_replicas_registered(layout: Layout, brokers: Mapping[str, BrokerView]) -> bool:
    return all(r.incarnation in brokers for s in layout.segments for r in s.replicas)
