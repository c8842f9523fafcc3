"""Which segments this incarnation holds, ever held, or has promised never to hold."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import structlog

from smq_broker.clock import Clock
from smq_broker.flusher import Flusher
from smq_broker.held import Held, key_of
from smq_broker.memory import Memory
from smq_broker.meters import Meters
from smq_broker.replication_out import FollowerLink
from smq_broker.sealing import Sealers
from smq_broker.watcher import SealWatcher, wait_for_predecessors
from smq_core.ending import REASON as DELETED
from smq_core.errors import InvalidRequest, NotHeld, SmqError, Unavailable, WrongIncarnation
from smq_core.model import Durability, SealOutcome, Segment, Topic
from smq_core.replica import State
from smq_proto.v1 import data_pb2 as pb
from smq_storage.chain import Chain
from smq_storage.layouts import read_layout
from smq_storage.store import Store

KEEP_OUTCOMES = 600.0
OPENED_WITHIN = 0.4
"""Streams may come before the leader's word to open. Shorter than after what a silent peer is reported."""
SEAL_ANSWER_WITHIN = 30.0

log = structlog.get_logger()


@dataclass(slots=True)
class Totals:
    """Counts of segments that were let go, so that sums never go back."""

    messages: int = 0
    bytes: int = 0
    batches: int = 0

    def add(self, held: Held) -> None:
        self.messages += held.machine.counters.messages
        self.bytes += held.bytes_in
        self.batches += held.machine.counters.batches


class Holdings:
    """``news`` is an event that is set when the leader should hear of something at once."""

    def __init__(
        self, incarnation: str, store: Store, memory: Memory, clock: Clock, meters: Meters, news: threading.Event
    ) -> None:
        self.incarnation = incarnation
        self.memory = memory
        self.draining = False
        self._store = store
        self._clock = clock
        self._news = news
        self._lock = threading.Lock()
        self._comes = threading.Condition(self._lock)
        self._held: dict[str, Held] = {}
        self._never: set[str] = set()
        self.forgotten = {role: Totals() for role in ("primary", "follower")}
        self.sealers = Sealers(meters, self._successors)
        self.flusher = Flusher(self.all, memory, meters, taken=self._seal_own)
        self.watcher = SealWatcher(self.all, self.sealers.found)

    def start(self) -> None:
        self.flusher.start()
        self.watcher.start()

    def all(self) -> list[Held]:
        with self._lock:
            return list(self._held.values())

    def bytes_in(self) -> int:
        """All bytes that ever came in, in both roles."""
        return sum(held.bytes_in for held in self.all()) + sum(totals.bytes for totals in self.forgotten.values())

    # ---- opening and finding

    def open(self, topic: Topic, segment: Segment) -> Held:
        """Holds the segment from now on; repeating it is harmless.

        Raises NotHeld (for good: it was held or refused before), Overloaded, Unavailable (this broker is leaving),
        InvalidRequest (the segment names no replica of this incarnation).
        """
        if all(r.incarnation != self.incarnation for r in segment.replicas):
            raise InvalidRequest(f"{segment.name} has no replica at this incarnation {self.incarnation}")
        if (segment.durability is Durability.STORED) != (len(segment.replicas) == 1):
            raise InvalidRequest(
                f"{segment.name} is {segment.durability.value} with {len(segment.replicas)} replicas: "
                "Stored has one, Replicated has two or more"
            )
        key = key_of(topic.uid, segment.name)
        with self._lock:
            held = self._held.get(key)
            if held is not None and held.machine.state not in (State.FENCED, State.SEALED):
                return held
            if held is not None or key in self._never:
                raise NotHeld(
                    f"{segment.name} was here before and is not opened again: choose another broker", final=True
                )
            if self.draining:
                raise Unavailable("this broker is being drained and opens nothing new: choose another broker")
            held = self._make(topic, segment)
            held.credit = 0 if held.is_primary else self.memory.grant(key)
            self._held[key] = held
            self._never.add(key)
            self._comes.notify_all()
        held.log.info("segment.opened", primary=held.is_primary, state=held.machine.state.value, credit=held.credit)
        self._begin(held)
        self._news.set()
        return held

    def find(self, segment: str, uid: str, incarnation: str) -> Held:
        """The held segment; one that was never here is waited for. Without ``uid`` its name must be clear.

        Raises WrongIncarnation, NotHeld.
        """
        self.check_incarnation(incarnation)
        with self._lock:
            if uid:
                key = key_of(uid, segment)
                self._comes.wait_for(lambda: key in self._never, OPENED_WITHIN)
                held = self._held.get(key)
                named = [held] if held is not None else []
            else:
                named = [h for h in self._held.values() if h.name == segment]
        living = [h for h in named if h.machine.state is not State.SEALED] or named
        if not living:
            raise NotHeld(f"this broker does not hold {segment}: locate the topic again", segment=segment)
        if len(living) > 1:
            raise InvalidRequest(f"several topics have a segment {segment} here: give the topic's uid as well")
        return living[0]

    def check_incarnation(self, incarnation: str) -> None:
        """Raises WrongIncarnation when the caller means another process."""
        if incarnation != self.incarnation:
            raise WrongIncarnation(
                f"this broker is incarnation {self.incarnation}, not {incarnation}: locate the topic again",
                incarnation=self.incarnation,
            )

    def _make(self, topic: Topic, segment: Segment) -> Held:
        return Held(
            topic,
            segment,
            self.incarnation,
            Chain(self._store, topic.name, topic.uid, segment.name),
            self.memory,
            self._clock,
            wants_flush=lambda held: self.flusher.kick(held),
            has_news=self._news.set,
        )

    def _begin(self, held: Held) -> None:
        if not held.is_primary:
            return
        held.links = [FollowerLink(held, follower, self._seal_own) for follower in held.segment.replicas[1:]]
        for link in held.links:
            link.start()
        if held.machine.state is State.WAITING:
            topic = held.topic
            threading.Thread(
                target=wait_for_predecessors,
                args=(
                    held,
                    lambda name: Chain(self._store, topic.name, topic.uid, name),
                    lambda name: self._outcome_in_memory(topic.uid, name) is not None,
                    self._news.set,
                ),
                name=f"open-{held.name}",
                daemon=True,
            ).start()

    # ---- sealing

    def seal(self, request: pb.SealSegment, successors: Iterable[Segment], context: Any) -> tuple[Held, SealOutcome]:
        """Seals a held segment. Raises NotHeld, for good, when it is not held; StoreUnavailable when it takes long."""
        self.check_incarnation(request.incarnation)
        key = key_of(request.uid, request.segment)
        with self._lock:
            held = self._held.get(key)
            if held is None:
                self._never.add(key)
                self._comes.notify_all()
        if held is None:
            log.info("seal.not_held", segment=request.segment, topic=request.topic)
            raise NotHeld(
                f"this broker does not hold {request.segment} and will never open it", segment=request.segment
            )
        if request.reason == DELETED:
            held.deleted = True
        outcome = self.sealers.seal(
            held, tuple(successors), request.reason, seconds=SEAL_ANSWER_WITHIN, given_up=context.is_cancelled
        )
        return held, outcome

    def flush_ahead(self, request: pb.SealSegment) -> None:
        """A seal comes: writes what the tail holds now. Raises NotHeld."""
        self.sealers.write_ahead(self.find(request.segment, request.uid, request.incarnation))

    def outcome(self, topic: str, uid: str, segment: str) -> tuple[SealOutcome, tuple[Segment, ...]]:
        """Of any segment, held or not: from memory, or from its seal chunk. Raises Unavailable when there is none."""
        held = self._outcome_in_memory(uid, segment)
        if held is not None and held.machine.outcome is not None:
            return held.machine.outcome, held.successors
        info = Chain(self._store, topic, uid, segment).seal()
        if info is None:
            raise Unavailable(f"{segment} is not sealed yet: ask again", segment=segment)
        return SealOutcome(segment, info.first, info.producers, info.lost), ()

    def _outcome_in_memory(self, uid: str, segment: str) -> Held | None:
        with self._lock:
            held = self._held.get(key_of(uid, segment))
        return held if held is not None and held.machine.outcome is not None else None

    def _seal_own(self, held: Held) -> None:
        """The chain or a follower says that somebody seals this segment: find out how it ended."""
        self.sealers.start(held, reason="somebody else began to seal it")

    def _successors(self, held: Held) -> tuple[Segment, ...]:
        try:
            found = read_layout(self._store, held.topic.name, held.topic.uid)
        except SmqError:
            return ()
        return tuple(s for s in found[0].segments if held.name in s.predecessors) if found else ()

    # ---- the leader's view, and forgetting

    def named_by_leader(self, names: Iterable[str]) -> None:
        """The layouts give these segments to this incarnation; any other may have been sealed by somebody else."""
        known = set(names)
        for held in self.all():
            held.unnamed = held.name not in known

    def silent(self) -> list[str]:
        """Incarnations of followers that owe an answer for 500 ms or more."""
        return sorted({link.incarnation for held in self.all() for link in held.links if link.silent()})

    def forget_old(self) -> None:
        """Lets go of segments that were sealed ten minutes ago; their names stay refused."""
        now = time.monotonic()
        for held in self.all():
            if held.machine.state is not State.SEALED:
                continue
            if held.sealed_at is None:
                held.sealed_at = now
            elif now - held.sealed_at > KEEP_OUTCOMES:
                with self._lock:
                    self._held.pop(held.key, None)
                    self.forgotten["primary" if held.is_primary else "follower"].add(held)
                self.sealers.forget(held.key)

    def drain(self) -> None:
        """Opens nothing more, and lets the leader know that all segments should go elsewhere."""
        if not self.draining:
            self.draining = True
            log.info("broker.draining")
            self._news.set()

    def flush_all(self) -> list[str]:
        """Asks all own primaries to write their tails; the names of those that are not written up to the watermark."""
        waiting = []
        for held in self.all():
            with held as machine:
                unwritten = machine.end > machine.chain_end if held.stored else machine.watermark > machine.chain_end
                if held.is_primary and machine.state is State.OPEN and unwritten:
                    held.ask_flush(machine.end)
                    waiting.append(held.name)
                elif machine.state is State.FENCED:
                    waiting.append(held.name)
        return waiting
