"""The protocol, broken in one place at a time: what the simulation must notice.

Each mutation is a function that gets pytest's ``monkeypatch``; its docstring is the rule that is broken. ``MUTATIONS``
maps names to them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from smq_core import groups, leading, sealer
from smq_core.dag import Reader
from smq_core.entries import Entry
from smq_core.errors import NotAtEnd, SequenceGap
from smq_core.leading import TopicLeader
from smq_core.model import Durability, SealOutcome
from smq_core.producing import Lane, LaneState
from smq_core.replica import SegmentReplica, State
from smq_core.sealing import Liveness, Sealing
from support.sim import conditional, grouping, reading
from support.sim.broker import Broker
from support.sim.chain import LAYOUT, Chain
from support.sim.holding import Holding
from support.sim.producer import Producer
from support.sim.replication import ReplicaServer
from support.sim.store import ConditionFailed, Store
from support.sim.world import MS

Patch = pytest.MonkeyPatch
MUTATIONS: dict[str, Callable[[Patch], None]] = {}


def mutation(break_it: Callable[[Patch], None]) -> Callable[[Patch], None]:
    MUTATIONS[break_it.__name__] = break_it
    return break_it


# ---- acks and replication


@mutation
def ack_before_the_follower_has_it(patch: Patch) -> None:
    """The watermark is the smallest end among the replicas, not the primary's own."""

    def advance(self: SegmentReplica) -> None:
        if self.state is State.OPEN:
            stored = self.config.durability is Durability.STORED
            self.watermark = max(self.watermark, self.chain_end if stored else self.end)

    patch.setattr(SegmentReplica, "_advance_watermark", advance)


@mutation
def stored_acks_before_the_chunk_is_written(patch: Patch) -> None:
    """For ``Stored`` the watermark is the chain's end, not the end of what was sent to the store."""
    original = SegmentReplica._advance_watermark

    def advance(self: SegmentReplica) -> None:
        original(self)
        if self.state is State.OPEN and self._chunk_in_flight is not None:
            self.watermark = max(self.watermark, self._chunk_in_flight.end)

    patch.setattr(SegmentReplica, "_advance_watermark", advance)


@mutation
def ack_repeats_before_the_watermark_covers_them(patch: Patch) -> None:
    """A repeat is acked when the watermark covers it, not because it is known."""
    original = SegmentReplica._ack_repeat

    def ack_repeat(self: SegmentReplica, stream: object, id_: Any) -> None:
        original(self, stream, id_)
        pending = self._repeat_acks.pop()
        self._repeat_acks.append(type(pending)(0, pending.ack))

    patch.setattr(SegmentReplica, "_ack_repeat", ack_repeat)


@mutation
def accept_a_sequence_gap(patch: Patch) -> None:
    """A batch whose predecessor never came is refused, else the gap is lost when it is sent again."""
    original = SegmentReplica.append

    def append(self: SegmentReplica, stream: object, batch: Any, now: int) -> Entry | None:
        try:
            return original(self, stream, batch, now)
        except SequenceGap:
            before = batch.id._replace(sequence=batch.id.sequence - 1)
            self._producers.apply(before, self.end)
            return append(self, stream, batch, now)

    patch.setattr(SegmentReplica, "append", append)


@mutation
def replication_beyond_the_own_end(patch: Patch) -> None:
    """A follower accepts a batch only at its own end."""
    original = SegmentReplica.replicate

    def replicate(self: SegmentReplica, message: Any) -> int:
        try:
            return original(self, message)
        except NotAtEnd:
            self.end = message.base_offset
            return original(self, message)

    patch.setattr(SegmentReplica, "replicate", replicate)


@mutation
def trim_the_follower_before_the_chunk_is_sure(patch: Patch) -> None:
    """A follower lets go of what is in the chain, not of what is acked."""
    original = SegmentReplica.replicate

    def replicate(self: SegmentReplica, message: Any) -> int:
        end = original(self, message)
        self._trim(self.watermark)
        return end

    patch.setattr(SegmentReplica, "replicate", replicate)


@mutation
def one_memory_budget_for_all(patch: Patch) -> None:
    """Replication never waits for producers' memory: two brokers that follow each other would block each other."""
    original = ReplicaServer.hear

    def hear(self: ReplicaServer, message: Any) -> None:
        broker = self.holding.broker
        used = sum(h.machine.tail_bytes for h in broker.holdings.values())
        if used > broker.settings.primary_budget and getattr(message, "entries", ()):
            broker.process.after(200 * MS, lambda: hear(self, message))
        else:
            original(self, message)

    patch.setattr(ReplicaServer, "hear", hear)


# ---- identity


@mutation
def forget_the_incarnation_check(patch: Patch) -> None:
    """Every stream and command names the incarnation it is meant for; another process refuses it."""
    patch.setattr(Broker, "_must_be", lambda self, incarnation: None)


@mutation
def open_what_was_promised_away(patch: Patch) -> None:
    """A segment that was refused once, or held, is never opened again by that incarnation."""
    original = Broker.on_open

    def on_open(self: Broker, segment: Any, incarnation: str) -> Any:
        self.tombs.discard(segment.name)
        held = self.holdings.get(segment.name)
        if held is not None and held.machine.state is State.SEALED:
            del self.holdings[segment.name]
        return (yield from original(self, segment, incarnation))

    patch.setattr(Broker, "on_open", on_open)


# ---- the store


@mutation
def trust_an_error_of_a_put(patch: Patch) -> None:
    """After any error the object is read back: it may have been applied."""

    def settle(store: Store, caller: Any, path: str, value: Any, etag: Any, is_mine: Any, patience: int = 0) -> Any:
        try:
            return conditional.Written((yield store.put(caller, path, value, etag)))
        except ConditionFailed:
            return conditional.Taken(store.truth(path))

    patch.setattr(conditional, "settle", settle)


@mutation
def take_a_conflict_for_own_success(patch: Patch) -> None:
    """ "Already there" says nothing of whose it is."""
    original = conditional.settle

    def settle(store: Store, caller: Any, path: str, value: Any, etag: Any, is_mine: Any, patience: int = 0) -> Any:
        result = yield from original(store, caller, path, value, etag, is_mine)
        return result if etag is not None or path == LAYOUT else conditional.Written("")

    patch.setattr(conditional, "settle", settle)


@mutation
def a_new_nonce_for_each_attempt(patch: Patch) -> None:
    """A chunk that is tried again keeps its nonce: an earlier attempt that lands late is the writer's own."""
    original = Chain.write
    patch.setattr(Chain, "write", lambda self, chunk, nonce="": original(self, chunk))


@mutation
def forget_producers_in_chunks(patch: Patch) -> None:
    """Every chunk says what its log knows of the producers: another sealer goes on from there."""
    original = Chain._create

    def create(self: Chain, stored: Any) -> Any:
        if not stored.info.sealed:
            from dataclasses import replace

            stored = replace(stored, info=replace(stored.info, producers={}))
        return original(self, stored)

    patch.setattr(Chain, "_create", create)


@mutation
def put_the_layout_without_its_etag(patch: Patch) -> None:
    """The layout's etag decides between two leaders."""
    original = Store._apply

    def apply(self: Store, path: str, value: Any, etag: str | None) -> str | None:
        if path == LAYOUT and path in self.things:
            etag = self.things[path].versions[-1][2]
        return original(self, path, value, etag)

    patch.setattr(Store, "_apply", apply)


# ---- sealing


@mutation
def seal_without_a_fence(patch: Patch) -> None:
    """From the moment it is asked to seal, a replica appends nothing."""
    patch.setattr(SegmentReplica, "fence", lambda self: None)


@mutation
def tell_an_outcome_before_the_seal_chunk(patch: Patch) -> None:
    """Nobody says anything about a batch's fate before the seal chunk exists."""
    original = Holding.seal

    def seal(self: Holding) -> Any:
        if self.sealing is None:
            machine = self.machine
            outcome = SealOutcome(self.name, machine.end, machine._producers.snapshot())
            for stream in list(self.streams):
                stream.stream.down(("sealed", outcome))
        return original(self)

    patch.setattr(Holding, "seal", seal)


@mutation
def seal_from_the_filer_while_a_replica_is_only_unreachable(patch: Patch) -> None:
    """Unreachable is not gone: only proof, or a person, lets the filer alone decide."""

    def may_hold(self: Sealing, incarnation: str, liveness: Any) -> bool:
        return not self._tries[incarnation].holds_nothing and liveness(incarnation) is Liveness.ALIVE

    patch.setattr(Sealing, "_may_hold", may_hold)


@mutation
def a_sealer_adds_nothing(patch: Patch) -> None:
    """A sealer writes what it holds beyond the chain's end before it ends the chain."""
    patch.setattr(sealer, "_entries_from", lambda entries, offset, max_bytes: ())


@mutation
def open_before_the_predecessors_are_sealed(patch: Patch) -> None:
    """A successor accepts nothing until it has read every predecessor's seal chunk."""
    original = SegmentReplica.__post_init__

    def post_init(self: SegmentReplica) -> None:
        original(self)
        self.state = State.OPEN

    patch.setattr(SegmentReplica, "__post_init__", post_init)


@mutation
def seal_a_successor_before_its_predecessors(patch: Patch) -> None:
    """A segment that never opened is sealed only after its predecessors: its own successors open at its seal chunk."""
    patch.setattr(TopicLeader, "_predecessors_sealed", lambda self, segment: True)


# ---- producers


@mutation
def send_onward_before_the_outcome_is_known(patch: Patch) -> None:
    """Batches in flight go to a successor only when the segment's outcome does not contain them."""
    original = Producer._advance

    def advance(self: Producer) -> None:
        for name, lane in self.lanes.lanes.items():
            if lane.in_flight and lane.state is LaneState.CLOSED:
                self._told.setdefault(name, SealOutcome(name, 0))
        original(self)

    patch.setattr(Producer, "_advance", advance)


@mutation
def a_reopened_stream_sends_only_what_is_new(patch: Patch) -> None:
    """What was in flight when a stream broke is sent again: it may not have come."""
    original = Lane.opened

    def opened(self: Lane, last_sequence: int | None) -> None:
        original(self, last_sequence)
        self.unsent = 0

    patch.setattr(Lane, "opened", opened)


# ---- readers and groups


@mutation
def a_reader_opens_successors_at_once(patch: Patch) -> None:
    """A segment is read only when its predecessors have been read to their ends."""
    patch.setattr(Reader, "readable", lambda self: [name for name in self.nodes if not self.is_read(name)])


@mutation
def a_group_counts_commits_that_are_not_written(patch: Patch) -> None:
    """A segment is handed out when its predecessors' ends are *committed*: in the store, not in a leader's memory."""
    original = groups.Group.commit

    def commit(self: groups.Group, member: str, generation: int, positions: Any) -> bool:
        changed = original(self, member, generation, positions)
        for segment, offset in positions.items():
            self.reader.advance(segment, offset)
        return changed

    patch.setattr(groups.Group, "commit", commit)


@mutation
def a_new_leader_goes_on_with_an_old_generation(patch: Patch) -> None:
    """Each leader that loads a group begins a generation of its own."""
    patch.setattr(grouping, "GENERATIONS_PER_LEADER", 1 << 60)
    original = grouping.GroupHost._loaded

    def loaded(self: Any, name: str) -> Any:
        new = name not in self.groups
        it = yield from original(self, name)
        if new:
            it.group.generation %= 1 << 60
        return it

    patch.setattr(grouping.GroupHost, "_loaded", loaded)


@mutation
def believe_an_index_that_is_behind(patch: Patch) -> None:
    """What an old index page does not show is not removed: the page is read again."""
    patch.setattr(reading, "index_is_behind", lambda layout, sealed, removed: False)
    patch.setattr(grouping, "index_is_behind", lambda layout, sealed, removed: False)


@mutation
def a_leader_never_reads_the_layout_again(patch: Patch) -> None:
    """A former leader's PUT may land after the new one has read the layout."""
    patch.setattr(leading, "RESYNC_AFTER", 1 << 62)
