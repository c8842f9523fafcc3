"""The leader of one topic: compares wish, layout and brokers, and says what is to be done next.

Level-triggered and without memory that matters: ``step`` may be called at any time, by any number of leaders; what
it wants done comes back as answers (``layout_read``, ``layout_put``, ``opened``, ...). A leader that is
stopped between any two effects is followed by one that reads the layout and goes on. The layout's etag
decides between two leaders; a lost or unclear PUT is answered by reading again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from smq_core import layout as layouts
from smq_core.decide import Decision, Request, check_request, decide
from smq_core.effects import AppendIndex, Effect, FlushAhead, OpenReplica, PutLayout, ReadLayout
from smq_core.keyspace import KeyRange, even_split
from smq_core.layout import Successor
from smq_core.model import Durability, Layout, Phase, SealOutcome, Segment, Topic
from smq_core.placement import BrokerView, Placer
from smq_core.refusals import Refusals
from smq_core.sealing import AskReplica, Blocked, Liveness, Sealing
from smq_core.topic_load import TopicLoad

RETRY_OPEN_AFTER = 500_000
HEAD_START = 1_000_000
"""So long a seal waits for its successors and for what is written ahead."""
WRITERS_FIRST = 150_000
"""So long after a seal nothing more is done about it: its writers go on meanwhile, and need the same processes."""
KEPT_REFUSALS = 100
RESYNC_AFTER = 30_000_000
"""A former leader's PUT may land after this one has read the layout: it is read again now and then."""
STRANGERS_REPORT_WITHIN = 3_000_000
"""So long brokers that another leader has placed segments on may need to report here, too."""


@dataclass(slots=True)
class _Opening:
    """How far a replica is told to open a segment."""

    asked: bool = False
    done: bool = False
    refused: bool = False
    retry_at: int = 0


@dataclass(slots=True)
class TopicLeader:
    """See the module's docstring. ``unique`` makes a text that no other PUT of any leader has.

    A new leader decides nothing before ``settles_at``, unless it has heard of every replica: the brokers need a moment
    to report to it.
    """

    topic: Topic
    unique: Callable[[], str]
    layout: Layout | None = None
    etag: str | None = None
    decisions: list[Decision] = field(default_factory=list)
    blocked: dict[str, Blocked] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    watermarks: dict[str, int] = field(default_factory=dict)
    load: TopicLoad = field(default_factory=TopicLoad)
    settles_at: int = 0
    _known: bool = False
    _reading: bool = False
    _read_at: int = 0
    _putting: bool = False
    given_up: dict[Request, str] = field(default_factory=dict)
    """The last requests that something else came before, and why they cannot be done."""
    _asked: list[Request] = field(default_factory=list)
    """Requests that the layout which is being put carries out."""
    _next: Layout | None = None
    """The layout that is being put."""
    _losses: set[str] = field(default_factory=set)
    """Segments whose loss a person has accepted, until the layout says so."""
    _indexing: bool = False
    _openings: dict[tuple[str, str], _Opening] = field(default_factory=dict)
    _open_everywhere: set[str] = field(default_factory=set)
    _sealings: dict[str, Sealing] = field(default_factory=dict)
    _seal_since: dict[str, int] = field(default_factory=dict)
    _sealed_since: dict[str, int] = field(default_factory=dict)
    _flushing: set[str] = field(default_factory=set)
    """Segments whose primaries write ahead what they hold."""
    _released: dict[str, set[str]] = field(default_factory=dict)
    _indexed: set[str] = field(default_factory=set)
    _retry_at: int = 0
    _overtaken: bool = False
    """The layout that was read last is another leader's, newer than the one that was known."""
    _refusals: Refusals = field(default_factory=Refusals)

    # ---- what is to be done

    @property
    def paused(self) -> bool:
        """True while load changes nothing of the topic. Failover, drains, rolls and requests by hand go on."""
        return self.load.paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        self.load.paused = paused

    def step(self, now: int, brokers: Mapping[str, BrokerView]) -> list[Effect]:
        """The effects to start now. ``brokers`` by incarnation; one that is missing is suspect, not gone."""
        if not self._known:
            if self._reading or now < self._retry_at:
                return []
            self._reading, self._read_at = True, now
            return [ReadLayout()]
        if self.layout is None:
            return self._create(now, brokers)
        if self.layout.ended:
            return []  # the topic was deleted, and this leader has not heard of it yet
        effects: list[Effect] = []
        if not self._reading and not 0 <= now - self._read_at < RESYNC_AFTER:
            self._reading, self._read_at = True, now
            effects.append(ReadLayout())
        effects += self._open(now, brokers)
        effects += self._seal(now, brokers)
        effects += self._index(now)
        if not self._putting and now >= self._retry_at:
            effects += self._change(now, brokers)
        return effects

    def _create(self, now: int, brokers: Mapping[str, BrokerView]) -> list[Effect]:
        if self._putting or now < self._retry_at:
            return []
        placer = Placer(brokers)
        spec = self.topic.spec
        parts = []
        for part in even_split(KeyRange(0, spec.partitions), spec.min_segments):
            placed = placer.place(spec.durability, spec.replicas)
            if placed is None:
                return []
            wanted = 1 if spec.durability is Durability.STORED else spec.replicas
            if now < self.settles_at and len(placed.replicas) < wanted:
                return []
            parts.append(Successor(part, placed.replicas, placed.durability))
        self._putting = True
        made = layouts.create(self.topic.name, self.topic.uid, spec.partitions, parts, now=now, writer=self.unique())
        self._decided(now, "create", tuple(s.name for s in made.segments), "the topic is new")
        return [PutLayout(made, None)]

    def _open(self, now: int, brokers: Mapping[str, BrokerView]) -> list[Effect]:
        assert self.layout is not None
        effects: list[Effect] = []
        for segment in self.layout.segments:
            if segment.successors or segment.name in self._open_everywhere:
                continue
            if all(self.holds(segment.name, replica.incarnation) for replica in segment.replicas):
                self._open_everywhere.add(segment.name)
                continue
            for replica in segment.replicas:
                broker = brokers.get(replica.incarnation)
                opening = self._openings.setdefault((segment.name, replica.incarnation), _Opening())
                if opening.asked or opening.done or opening.refused or now < opening.retry_at:
                    continue
                if broker is None or broker.liveness is Liveness.GONE:
                    continue
                opening.asked = True
                effects.append(OpenReplica(segment, replica))
        return effects

    def _seal(self, now: int, brokers: Mapping[str, BrokerView]) -> list[Effect]:
        assert self.layout is not None
        liveness = liveness_in(brokers)
        ending = [segment for segment in self.layout.segments if segment.successors]
        effects = self._flush_ahead(ending, now, liveness)
        for segment in ending:
            sealing = self._sealings[segment.name]
            if sealing.outcome is not None:
                since = self._sealed_since.setdefault(segment.name, now)
                if now - since >= WRITERS_FIRST:
                    effects += self._release(segment, liveness)
                continue
            if not self._predecessors_sealed(segment):
                continue
            if not self._may_fence(segment, now, liveness):
                continue
            if segment.loss_accepted:
                sealing.accept_loss()
            known = (self.watermarks.get(segment.name), segment.known_watermark)
            sealing.known_watermark = max((it for it in known if it is not None), default=None)
            step = sealing.next_step(now, liveness)
            self.blocked.pop(segment.name, None)
            if isinstance(step, Blocked):
                self.blocked[segment.name] = step
            elif step is not None:
                effects.append(step)
        return effects

    def _flush_ahead(self, ending: Sequence[Segment], now: int, liveness: Callable[[str], Liveness]) -> list[Effect]:
        """Begins the seals that the layout asks for."""
        effects: list[Effect] = []
        for segment in ending:
            if segment.name not in self._sealings:
                self._sealings[segment.name] = Sealing(segment)
                self._seal_since[segment.name] = now
                if liveness(segment.primary.incarnation) is Liveness.ALIVE:
                    self._flushing.add(segment.name)
                    effects.append(FlushAhead(segment))
        return effects

    def _release(self, segment: Segment, liveness: Callable[[str], Liveness]) -> list[Effect]:
        """The replicas learn that it is sealed by being asked to seal: they find the seal chunk and let go."""
        alive = [r for r in segment.replicas if liveness(r.incarnation) is Liveness.ALIVE]
        told = self._released.setdefault(segment.name, set())
        asks: list[Effect] = [AskReplica(segment.name, r) for r in alive if r.incarnation not in told]
        told.update(r.incarnation for r in alive)
        return asks

    def _predecessors_sealed(self, segment: Segment) -> bool:
        """One that never opened could be sealed at once, but its successors open when they see that: not before those
        that came before it take nothing more."""
        assert self.layout is not None
        return all(self.outcome(p) is not None for p in segment.predecessors if p in self.layout)

    def _may_fence(self, segment: Segment, now: int, liveness: Callable[[str], Liveness]) -> bool:
        """Successors open, and tails are written, before the seal begins, so that writers go straight on.

        Segments that are merged wait for each other's tails: the writers of all stand still until the last one is
        sealed. But nobody is waited for long.
        """
        assert self.layout is not None
        if now - self._seal_since[segment.name] >= HEAD_START:
            return True
        successors = [self.layout.segment(name) for name in segment.successors]
        if any(name in self._flushing for successor in successors for name in successor.predecessors):
            return False
        for successor in successors:
            if successor.successors:
                continue
            for replica in successor.replicas:
                opening = self._openings.get((successor.name, replica.incarnation), _Opening())
                if not opening.done and liveness(replica.incarnation) is Liveness.ALIVE:
                    return False
        return True

    def _index(self, now: int) -> list[Effect]:
        """The index entries come before the layout lets the segments go."""
        assert self.layout is not None
        settled = {name for name, since in self._sealed_since.items() if now - since >= WRITERS_FIRST}
        leaving = layouts.activatable(self.layout, settled) - self._indexed
        if not leaving or self._indexing or now < self._retry_at:
            return []
        self._indexing = True
        entries = [layouts.sealed_entry(self.layout.segment(name), self._outcomes()[name], now) for name in leaving]
        return [AppendIndex(tuple(sorted(entries, key=lambda e: e.number)))]

    def _change(self, now: int, brokers: Mapping[str, BrokerView]) -> list[Effect]:
        """One PUT for everything that can change now: sealed segments leave, new decisions enter."""
        assert self.layout is not None
        layout = self.layout
        done = {name for name in self._outcomes() if name in self._indexed}
        leaving = layouts.activatable(layout, done)
        if leaving:
            layout = layouts.activate(layout, leaving, writer=self.unique())
        given_up = {
            s.name: self.watermarks.get(s.name)
            for s in layout.segments
            if s.name in self._losses and not s.loss_accepted
        }
        if given_up:
            layout = layouts.accept_losses(layout, given_up, writer=self.unique())
            self._decided(now, "accept loss", tuple(sorted(given_up)), "a person gives up what cannot be reached")
        known = _all_known(layout, brokers)
        if self._overtaken and not known:  # who knows less must not undo what the other one does
            self.settles_at = max(self.settles_at, now + STRANGERS_REPORT_WITHIN)
        self._overtaken = False
        if now < self.settles_at and not known:
            brokers = {}
        refused = {key for key, opening in self._openings.items() if opening.refused}
        asked = self.requests
        plans, decisions, followed = decide(
            self.topic.spec,
            layout,
            brokers,
            self.requests,
            refused=refused,
            resting=self._refusals.resting(now),
            changes=self.load.changes(self.topic.spec, layout, brokers, now),
            now=now,
        )
        self.requests = followed.waiting
        for request, why in followed.given_up.items():
            self._give_up(now, request, why)
        if plans:
            layout = layouts.plan(layout, plans, now=now, writer=self.unique())
            for decision in decisions:
                self.decisions.append(replace(decision, topic=self.topic.name))
            del self.decisions[:-100]
        if layout is self.layout:
            return []
        self._putting = True
        self._asked = [r for r in asked if r not in self.requests and r not in followed.given_up]
        self._next = replace(layout, version=self.layout.version + 1)
        return [PutLayout(self._next, self.etag)]

    # ---- answers

    def layout_read(self, found: tuple[Layout, str] | None) -> None:
        """The filer's layout and its etag, or None when there is none yet.

        What is older than the layout that was known is passed over: the filer showed what was there before.
        """
        self._reading = False
        if self.layout is not None and (found is None or found[0].version < self.layout.version):
            return
        self._known = True
        self._overtaken = self.layout is not None and found is not None and found[0].version > self.layout.version
        self.layout, self.etag = found if found is not None else (None, None)
        self._forget()

    def read_failed(self, now: int) -> None:
        self._reading = False
        self._retry_at = now + 200_000

    def layout_put(self, layout: Layout, etag: str) -> None:
        self._putting, self._next = False, None
        self._asked = []
        self.layout, self.etag = layout, etag
        self._forget()

    def layout_lost(self, now: int, *, unclear: bool = False) -> None:
        """Another leader's PUT came first, or nobody knows: think again from what the filer says."""
        self._putting, self._next = False, None
        self.requests, self._asked = self._asked + self.requests, []
        self._known = False
        self._retry_at = now + 200_000 if unclear else now

    def opened(self, segment: str, incarnation: str) -> None:
        """This incarnation holds the segment."""
        opening = self._openings.setdefault((segment, incarnation), _Opening())
        opening.asked, opening.done = False, True
        self._refusals.opened(incarnation)

    @property
    def knows_layout(self) -> bool:
        """True when the filer has said which layout the topic has, or that it has none yet."""
        return self._known

    @property
    def rests(self) -> bool:
        """True when nothing is asked for or under way: a step changes something only by load, age or the brokers."""
        if not self._known or self.layout is None or self._putting or self._indexing or self.requests or self._losses:
            return False
        for s in self.layout.segments:
            if s.phase is not Phase.OPEN or s.successors or s.name not in self._open_everywhere:
                return False
        return True

    def holds(self, segment: str, incarnation: str) -> bool:
        """True when this incarnation said that it holds the segment."""
        opening = self._openings.get((segment, incarnation))
        return opening is not None and opening.done

    def open_failed(self, segment: str, incarnation: str, now: int, *, refused: bool) -> None:
        """The call failed; ``refused`` when the process said no for good: the segment must go elsewhere."""
        opening = self._openings.setdefault((segment, incarnation), _Opening())
        opening.asked, opening.retry_at, opening.refused = False, now + RETRY_OPEN_AFTER, refused
        if refused:
            self._refusals.refused(incarnation, now)

    def flushed(self, segment: str) -> None:
        """Its primary has written ahead what it held, or could not."""
        self._flushing.discard(segment)

    def sealed(self, outcome: SealOutcome) -> None:
        if outcome.segment in self._sealings:
            self._sealings[outcome.segment].sealed(outcome)

    def seal_refused(self, segment: str, incarnation: str, now: int, *, not_held: bool = False) -> None:
        if segment not in self._sealings:
            return
        if not_held:
            self._sealings[segment].not_held(incarnation)
        else:
            self._sealings[segment].refused(incarnation, now)

    def filer_seal_failed(self, segment: str, now: int) -> None:
        if segment in self._sealings:
            self._sealings[segment].filer_failed(now)

    def accept_loss(self, segment: str) -> bool:
        """A person lets a blocked seal go on, as soon as the layout says so: then it is remembered by whoever leads.

        False when the segment is not being sealed.
        """
        sealing = self._sealings.get(segment)
        if sealing is None or sealing.outcome is not None:
            return False
        self._losses.add(segment)
        return True

    def loss_is_accepted(self, segment: str) -> bool:
        """True when a person has said so, written down or not yet."""
        sealing = self._sealings.get(segment)
        return segment in self._losses or (sealing is not None and sealing.loss_accepted)

    def ask(self, request: Request) -> None:
        """Takes what a person asks for; asking again for what waits changes nothing.

        Raises ValueError, in words for the person who asked, when it cannot be done, or something else is being done.
        """
        if self.waits(request):
            return
        if self.layout is None:
            raise ValueError(f"topic {self.topic.name} has no segments yet")
        check_request(self.layout, request)
        if self._next is not None:
            check_request(self._next, request)
        if any(set(request.segments) & set(other.segments) for other in self.requests):
            raise ValueError(f"something is asked for {', '.join(request.segments)} already: wait for it")
        self.given_up.pop(request, None)
        self.requests.append(request)

    def waits(self, request: Request) -> bool:
        """True from when it is asked for until the layout says that it is done, or it is given up."""
        return request in self.requests or request in self._asked

    def is_asked(self, request: Request) -> bool:
        """True while the same is asked of its first segment, and not in the layout yet."""
        waiting = (r for r in (*self.requests, *self._asked) if r.action == request.action)
        return any(request.segments[0] in other.segments for other in waiting)

    def indexed(self, names: Sequence[str]) -> None:
        self._indexing = False
        self._indexed.update(names)

    def index_failed(self, now: int) -> None:
        self._indexing = False
        self._retry_at = now + 200_000

    def sealed_count(self) -> int:
        """How many segments of the layout are known to be sealed."""
        return len(self._outcomes())

    def outcome(self, segment: str) -> SealOutcome | None:
        sealing = self._sealings.get(segment)
        return sealing.outcome if sealing is not None else None

    # ---- inside

    def _outcomes(self) -> dict[str, SealOutcome]:
        return {name: s.outcome for name, s in self._sealings.items() if s.outcome is not None}

    def _forget(self) -> None:
        """Drops what belongs to segments that left the layout."""
        names = {s.name for s in self.layout.segments} if self.layout is not None else set()
        self._losses &= names
        self._flushing &= names
        self._openings = {key: value for key, value in self._openings.items() if key[0] in names}
        self._open_everywhere &= names
        self._sealings = {key: value for key, value in self._sealings.items() if key in names}
        self._seal_since = {key: value for key, value in self._seal_since.items() if key in names}
        self._sealed_since = {key: value for key, value in self._sealed_since.items() if key in names}
        self._released = {key: value for key, value in self._released.items() if key in names}
        self.blocked = {key: value for key, value in self.blocked.items() if key in names}
        self.watermarks = {key: value for key, value in self.watermarks.items() if key in names}
        self._indexed &= names

    def _give_up(self, now: int, request: Request, why: str) -> None:
        self.given_up[request] = why
        while len(self.given_up) > KEPT_REFUSALS:
            del self.given_up[next(iter(self.given_up))]
        words = f"the {request.action} asked for by hand cannot be done any more: {why}"
        self._decided(now, "refused", request.segments, words)

    def _decided(self, now: int, action: str, segments: tuple[str, ...], reason: str) -> None:
        self.decisions.append(Decision(now, self.topic.name, action, segments, reason))


def liveness_in(brokers: Mapping[str, BrokerView]) -> Callable[[str], Liveness]:
    """How alive an incarnation is; one that the leader has not heard of is suspect."""

    def of(incarnation: str) -> Liveness:
        broker = brokers.get(incarnation)
        return broker.liveness if broker is not None else Liveness.SUSPECT

    return of


def _all_known(layout: Layout, brokers: Mapping[str, BrokerView]) -> bool:
    return all(r.incarnation in brokers for s in layout.segments for r in s.replicas)


def accepting(layout: Layout) -> list[Segment]:
    """The segments that producers write to, or will: those without successors."""
    return [s for s in layout.segments if s.phase in (Phase.OPEN, Phase.PENDING) and not s.successors]
