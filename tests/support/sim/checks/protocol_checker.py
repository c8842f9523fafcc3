"""Turns what the simulated processes do into observations for ``smq_core.invariants``, and stops at a violation.

It sees everything as it really is: the store without its lies, every replica's machine, also of dead processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from smq_core import invariants as inv
from smq_core.invariants import Message, Row, Violation
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Durability, Layout, TopicSpec
from smq_core.model.kafka_producers import KafkaBatchId
from smq_core.model.keyspace import KeyRange
from smq_core.producing.send_queue import DeliveredSubBatch
from smq_core.reading.consumer_group import Group
from smq_core.replica.log_entries import Ack, BatchId, Entry
from support.sim.checks.file_list_checker import FileListChecker
from support.sim.checks.kafka_checker import KafkaChecker, batch_key
from support.sim.checks.loss_checker import LossChecker
from support.sim.checks.producer_checker import ProducerChecker
from support.sim.checks.retention_checker import RetentionChecker
from support.sim.clients.messages import SimulatedSubBatch, rows
from support.sim.clients.uploads import FOLDER, referenced_by_chunks
from support.sim.engine.world import World
from support.sim.filer.chunk_chain import INDEX, LAYOUT, VALUES, StoredChunk, segments_that_name, true_chain
from support.sim.filer.object_store import SimulatedStore

if TYPE_CHECKING:
    from support.sim.brokers.broker import SimulatedBroker
    from support.sim.brokers.hosted_segment import SimulatedSegment


class InvariantViolated(Exception):
    """An invariant does not hold."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(str(violation))
        self.violation = violation


class ProtocolChecker:
    spec: TopicSpec | None = None
    """Known where retention is at work."""

    def __init__(self, world: World, store: SimulatedStore) -> None:
        self.world = world
        self.store = store
        self.retained = RetentionChecker(self)
        self.file_lists = FileListChecker(self)
        self.producers = ProducerChecker(self)
        self.losses = LossChecker(self)
        self.kafka = KafkaChecker(self)
        self.hosted_segments: dict[str, list[SimulatedSegment]] = {}
        self.everyone: dict[str, tuple[str, ...]] = {}
        self.predecessors: dict[str, tuple[str, ...]] = {}
        self.durability: dict[str, Durability] = {}
        self.ranges: dict[str, KeyRange] = {}
        self.accepted: dict[str, KeyRange] = {}
        self.logs: dict[str, dict[int, Message]] = {}
        self.batch_ends: dict[tuple[Any, ...], int] = {}
        self.chain_ends: dict[str, int] = {}
        self.seals: dict[str, SealOutcome] = {}
        self.sent_messages: list[Message] = []
        self.acked_rows: dict[Message, Row] = {}
        self.acked_at: dict[Message, int] = {}
        self.acked_ends: dict[str, int] = {}
        self.owners: dict[str, dict[tuple[int, str], str]] = {}
        self.committed: dict[str, dict[str, int]] = {}
        self.layouts: list[tuple[int, Layout]] = []
        self.taken: list[tuple[int, str, int]] = []
        self.sealed_at: dict[str, int] = {}
        store.watchers.append(self._stored)

    def must(self, violations: Iterable[Violation]) -> None:
        for violation in violations:
            error = InvariantViolated(violation)
            self.world.fail(error)  # the product's code may only log it
            raise error

    # ---- the store

    def chain_of(self, name: str) -> list[StoredChunk]:
        """What is really there of the segment."""
        return true_chain(self.store, name)

    def _stored(self, path: str, value: Any) -> None:
        if path.startswith(FOLDER):
            if value is None and path in referenced_by_chunks(self.store):
                self.must([Violation(12, path, "it is deleted, and a chunk refers to it")])
            return
        if path.startswith(VALUES):
            left = segments_that_name(self.store, path) - self.retained.rows.keys() if value is None else ()
            self.must(Violation(12, name, f"{path} is deleted, and a chunk names it") for name in left)
            return
        if self.file_lists.concerns(path):
            self.file_lists.changed(path, value)
        elif value is None:
            self.retained.deleted(path)
        elif path == LAYOUT:
            self._layout(value)
        elif path == INDEX:
            self.retained.index_put(value, self.spec)
            self.file_lists.index_put(value)
        elif path.startswith("seg/"):
            self._chunk(value)
        elif path.startswith("group/"):
            name = path.removeprefix("group/")
            self.must(inv.commits_grow(name, self.committed.get(name, {}), value.positions))
            self.committed[name] = dict(value.positions)
            self.retained.born.setdefault(name, self.world.now)

    def _layout(self, layout: Layout) -> None:
        self.must(inv.ring_is_covered(layout))
        self.layouts.append((self.world.now, layout))
        for segment in layout.segments:
            self.everyone.setdefault(segment.name, tuple(r.incarnation for r in segment.replicas))
            self.predecessors.setdefault(segment.name, segment.predecessors)
            self.durability.setdefault(segment.name, segment.durability)
            self.ranges.setdefault(segment.name, segment.range)

    def _chunk(self, stored: StoredChunk) -> None:
        info = stored.info
        name = info.segment
        if info.sealed:
            self.seals.setdefault(name, info.outcome)
            self.sealed_at.setdefault(name, self.world.now)
            self.accepted.pop(name, None)
            self.losses.sealed(info)
            self.producers.sealed(info)
        elif info.first == self.chain_ends.get(name, 0):
            self.chain_ends[name] = info.end
            if name not in self.seals:
                self.producers.chunk_stored(info)

    # ---- brokers

    def may_leave(self, broker: SimulatedBroker) -> None:
        """A leader let this broker go; elastic histories have a rule for that."""

    def opened(self, hosted: SimulatedSegment) -> None:
        others = self.hosted_segments.setdefault(hosted.name, [])
        twice = [h for h in others if h.broker.incarnation == hosted.broker.incarnation]
        self.must(Violation(8, hosted.name, f"opened twice by {hosted.broker.incarnation}") for _ in twice)
        others.append(hosted)

    def appended(self, hosted: SimulatedSegment, entry: Entry, watermark: int) -> None:
        """``watermark`` is that of the moment before."""
        name = hosted.name
        if name not in self.seals:
            self.must(inv.one_accepts(name, hosted.segment.range, self.accepted))
            self.accepted[name] = hosted.segment.range
        self.must(inv.predecessors_sealed(name, hosted.segment.predecessors, self.seals))
        log = self.logs.setdefault(name, {})
        for offset, message in rows([entry]):
            log[offset] = message
        key = batch_key(name, entry.batch) if isinstance(entry.batch.id, KafkaBatchId) else (name, *entry.batch.id)
        self.batch_ends[key] = entry.end
        self.taken.append((self.world.now, name, entry.batch.rows))
        forgets = f", forgets {', '.join(entry.forgotten)}" if entry.forgotten else ""
        self.world.note(hosted.process.name, name, f"{_batch(entry)} at {entry.first}..{entry.end}{forgets}")
        self.producers.appended(hosted, entry, watermark)

    def acked(self, hosted: SimulatedSegment, ack: Ack) -> None:
        name = hosted.name
        end = self.batch_ends.get((name, *ack.id))
        if end is None:
            self.must([Violation(7, name, f"{hosted.process.name} acks {ack.id}, which it never took")])
        assert end is not None
        self.must(inv.ack_is_covered(name, end, self.durable_ends(name), self.chain_ends.get(name, 0)))
        if name in self.seals and name not in self.losses.lost:
            self.must(inv.one_end(name, [self.seals[name].end], [end]))
        self.acked_ends[name] = max(self.acked_ends.get(name, 0), end)
        self.world.note(hosted.process.name, name, f"acks {_name(ack.id)}")

    def durable_ends(self, name: str) -> dict[str, int]:
        """The end of each replica's log, in its journal if it has one; of dead ones as it was. Empty for ``Stored``."""
        if self.durability.get(name) is Durability.STORED:
            return {}
        ends = dict.fromkeys(self.everyone[name], 0)
        for hosted in self.hosted_segments.get(name, []):
            if hosted.broker.incarnation in ends:
                ends[hosted.broker.incarnation] = _durable_end(hosted)
        return ends

    def durable(self, name: str) -> int:
        held = self.durable_ends(name)
        return max(self.chain_ends.get(name, 0), min(held.values()) if held else 0)

    def replicated(self, hosted: SimulatedSegment, before: int) -> None:
        machine = hosted.machine
        taken = [e for e in machine.tail if e.first >= before]
        own = [Row(hosted.name, offset, message) for offset, message in rows(taken)]
        self.must(inv.follower_is_prefix(hosted.name, before, own, self.logs.get(hosted.name, {})))
        self.must(inv.not_above(machine.watermark, self.durable(hosted.name), hosted.name))
        self.producers.replicated(hosted.name, hosted.process.name, machine)
        self.observed(hosted)

    def observed(self, hosted: SimulatedSegment) -> None:
        """Now and then, at every replica."""
        machine, settings, name = hosted.machine, hosted.broker.settings, hosted.name
        in_chain = self.chain_ends.get(name, 0)
        self.must(inv.trimmed_in_chain(name, hosted.process.name, machine.chain_end, in_chain))
        if len(machine.config.replicas) > 1:
            self.must(inv.bounded(name, "the tail", machine.tail_bytes, settings.credit + 400))

    def served(self, hosted: SimulatedSegment, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.must(inv.not_above(entry.end, self.durable(hosted.name), hosted.name))

    def record_outcome(self, outcome: SealOutcome | None, who: str) -> None:
        """A process reports the outcome of the segment's batches."""
        assert outcome is not None
        known = self.seals.get(outcome.segment)
        if known is None:
            self.must([Violation(6, outcome.segment, f"{who} tells an outcome before the seal chunk exists")])
        elif (known.end, known.producers) != (outcome.end, outcome.producers):
            self.must([Violation(6, outcome.segment, f"{who} tells {outcome}, the seal chunk says {known}")])

    def seal_reported(self, segment: str, end: int) -> None:
        known = self.seals.get(segment)
        self.must(inv.one_end(segment, [end, known.end if known is not None else -1], []))

    # ---- producers

    def sent(self, message: Message) -> None:
        self.sent_messages.append(message)

    def acked_to(self, producer: Any, delivered: DeliveredSubBatch) -> None:
        """The producer received the ack of a sub-batch."""
        sub_batch = delivered.sub_batch
        assert isinstance(sub_batch, SimulatedSubBatch)
        for i, message in enumerate(sub_batch.messages):
            offset = -1 if delivered.first_offset is None else delivered.first_offset + i
            self.acked_rows[message] = Row(delivered.segment, offset, message)
            self.acked_at[message] = self.world.now

    # ---- groups

    def assigned(self, name: str, group: Group) -> None:
        """The group's assignment as it is now, against what the store has of its commits."""
        owners = self.owners.setdefault(name, {})
        self.must(inv.one_owner(name, owners, group.generation, group.assignment))
        ends = {segment: outcome.end for segment, outcome in self.seals.items()}
        committed = self.committed.get(name, {})
        # A position implies that everything before its segment is committed to its end; so does its removal.
        passed = committed | {p: ends.get(p, 0) for p in (*self.ancestors(committed), *self.retained.rows)}
        for segment, member in group.assignment.items():
            if (group.generation, segment) not in owners:
                owners[group.generation, segment] = member
                self.must(inv.predecessors_committed(name, segment, self._filled(segment), passed, ends))

    def record_read(self, positions: Mapping[str, int], segment: str) -> bool:
        """Whether these positions say that the (sealed) segment was read to its end."""
        return positions.get(segment, -1) >= self.seals[segment].end or segment in self.ancestors(positions)

    def ancestors(self, names: Iterable[str]) -> set[str]:
        found: set[str] = set()
        waiting = list(names)
        while waiting:
            new = [p for p in self.predecessors.get(waiting.pop(), ()) if p not in found]
            found.update(new)
            waiting += new
        return found

    def _filled(self, segment: str) -> set[str]:
        """Its predecessors; in the place of empty ones, theirs."""
        found: set[str] = set()
        for name in self.predecessors[segment]:
            empty = name in self.seals and self.seals[name].end == 0
            found |= self._filled(name) if empty else {name}
        return found


def _durable_end(hosted: SimulatedSegment) -> int:
    if hosted.journal is None or hosted.journal.journal is None or hosted.journal.failed:
        return hosted.machine.end
    return max(hosted.journal.journal.end, hosted.machine.chain_end)


def _batch(entry: Entry) -> str:
    sub_batch = entry.batch.payload
    assert isinstance(sub_batch, SimulatedSubBatch)
    keys = ",".join(f"{m.key}#{m.serial}" for m in sub_batch.messages)
    return f"{_name(entry.batch.id)} [{keys}]"


def _name(id_: BatchId | KafkaBatchId) -> str:
    return f"{id_[0]}.{id_.epoch}#{id_.sequence}"
