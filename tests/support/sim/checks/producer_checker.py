"""Checks who writes to a segment: epochs and instances, what replicas remember of producers, and whom they forget.

It follows the entries that primaries append, and computes from them alone which process may write as a producer. It is
the one of the highest epoch in the segment and in its ancestors, until the producer is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from smq_core import invariants as inv
from smq_core.model.chunk_info import CONFLICTING_INSTANCES, ChunkInfo
from smq_core.replica.log_entries import BatchId, Entry
from smq_core.replica.log_state import LogState
from smq_core.replica.segment_replica import SegmentReplica

if TYPE_CHECKING:
    from support.sim.brokers.hosted_segment import SimulatedSegment
    from support.sim.checks.protocol_checker import ProtocolChecker


class Writer(NamedTuple):
    """Who may write as a producer, and the end of its last batch in this segment. No instance may if there are two."""

    epoch: int
    instances: frozenset[str]
    appended: int
    end: int = 0


class AppendedEntry(NamedTuple):
    """An entry of a primary's log, and the time when it was appended."""

    entry: Entry
    at: int


class ProducerChecker:
    def __init__(self, checker: ProtocolChecker) -> None:
        self.forgotten = 0
        """How often a segment forgot a producer."""
        self.claims: dict[tuple[str, int], str] = {}
        self._checker = checker
        self._logs: dict[str, list[AppendedEntry]] = {}
        self._writers: dict[str, dict[str, Writer]] = {}
        self._final: dict[str, dict[str, Writer]] = {}
        self._states: dict[tuple[str, int], object] = {}
        """The producers' state at the end of each entry, as the primary knows it."""
        self._chains: dict[str, LogState] = {}
        self._left_at: dict[tuple[str, str], int] = {}
        self._opened: set[str] = set()
        self._found_removed: dict[str, set[str]] = {}

    # ---- what a primary takes over

    def opened(self, name: str) -> None:
        """The primary of this segment has read the seals of all predecessors."""
        self._opened.add(name)

    def found_removed(self, name: str, removed: str) -> None:
        """The primary of ``name`` cannot read a seal, because retention has removed it.

        That is right only if somebody else had read it: a successor that was opened, and lost all of its log since, or
        the successors of one that another broker has sealed meanwhile.
        """
        self._found_removed.setdefault(name, set()).add(removed)
        before = self._checker.predecessors
        waiting = [it for it in self._delegating(name) if removed in before[it] and not self._was_inherited(it)]
        if waiting:
            words = f"{removed} was removed before {', '.join(waiting)} had read its seal"
            self._checker.must([inv.Violation(9, name, words)])

    def _was_inherited(self, name: str) -> bool:
        """Whether what the segment inherits was read, by its primary or by those after it, because it ended empty."""
        if name in self._opened or not self._is_unknowing(name):
            return name in self._opened
        successors = [it for it, before in self._checker.predecessors.items() if name in before]
        return bool(successors) and all(self._was_inherited(it) for it in successors)

    def _delegating(self, name: str) -> list[str]:
        """The segment itself, and those before it that ended empty without knowing what they had inherited."""
        found = [name]
        for segment in found:
            found += [it for it in self._checker.predecessors[segment] if it not in found and self._is_unknowing(it)]
        return found

    def _is_unknowing(self, name: str) -> bool:
        seal = self._checker.seals.get(name)
        return seal is not None and bool(seal.uninherited)

    # ---- at the primary

    def stream_closed(self, hosted: SimulatedSegment, producer: str) -> None:
        self._left_at[hosted.name, producer] = self._checker.world.now

    def appended(self, hosted: SimulatedSegment, entry: Entry, watermark: int) -> None:
        """``watermark`` is that of the moment before."""
        name, id_, must = hosted.name, entry.batch.id, self._checker.must
        log = self._logs.setdefault(name, [])
        if name not in self._writers:
            self._writers[name] = self._inherited(name)
        writers = self._writers[name]
        for producer in entry.forgotten:
            self._check_forgotten(hosted, producer, entry, watermark)
            writers.pop(producer, None)
            self.forgotten += 1
        if isinstance(id_, BatchId):
            known = writers.get(id_.producer)
            if known is not None:
                must(inv.writes_in_turn(name, id_.producer, id_.epoch, id_.instance, known.epoch, known.instances))
            writers[id_.producer] = _writer_of(entry, id_)
        log.append(AppendedEntry(entry, self._checker.world.now))
        self._states[name, entry.end] = _producers_of(hosted.machine.state_at_end())
        if isinstance(id_, BatchId):  # batches of Kafka producers forget none of the others
            self._check_bound(hosted, watermark)

    def _check_forgotten(self, hosted: SimulatedSegment, producer: str, entry: Entry, watermark: int) -> None:
        config, known = hosted.machine.config, self._writers[hosted.name]
        writer = known.get(producer)
        because = ""
        if writer is None:
            because = "it is not known"
        elif any(stream.producer == producer for stream in hosted.streams):
            because = "it has an open stream"
        elif writer.end > watermark:
            because = f"its last batch ends at {writer.end}, above the watermark {watermark}"
        elif (
            entry.appended - writer.appended <= config.producer_limits.idle
            and len(known) < config.producer_limits.count
        ):
            because = f"it is not idle, and there are only {len(known)} producers"
        if because:
            self._checker.must([inv.Violation(11, hosted.name, f"{producer} is forgotten, but {because}")])

    def _check_bound(self, hosted: SimulatedSegment, watermark: int) -> None:
        """Above the limit are only producers with a stream open now, or since the oldest batch without an outcome."""
        name = hosted.name
        since = self._checker.world.now
        for entry, at in reversed(self._logs[name][:-1]):
            if entry.end <= watermark:
                break
            since = at
        open_ = {stream.producer for stream in hosted.streams}
        open_ |= {p for (segment, p), at in self._left_at.items() if segment == name and at >= since}
        limit = max(hosted.machine.config.producer_limits.count, len(open_))
        self._checker.must(inv.bounded(name, "the producers' map", len(hosted.machine.sessions.producers), limit))

    # ---- at other replicas, and in the chain

    def replicated(self, name: str, who: str, machine: SegmentReplica) -> None:
        self._check_same(name, who, machine.end, machine.state_at_end())

    def chunk_stored(self, info: ChunkInfo) -> None:
        """The next chunk of the chain."""
        chain = self._chains.setdefault(info.segment, LogState())
        chain.apply_chunk(info)
        self._check_same(info.segment, f"the chunk {info.first}..{info.end}", info.end, chain)

    def sealed(self, info: ChunkInfo) -> None:
        if info.first > 0:
            state = LogState()
            state.apply_chunk(info)
            self._check_same(info.segment, "the seal", info.first, state)
            return
        expected = {} if info.uninherited else _fences(self._inherited(info.segment))
        found = {name: (state.epoch, state.instance) for name, state in info.producers.items()}
        if found != expected or tuple(info.uninherited) not in ((), self._checker.predecessors[info.segment]):
            words = f"it ends empty with {found} from {info.uninherited}, not with {expected}"
            self._checker.must([inv.Violation(9, info.segment, words)])

    def _check_same(self, name: str, who: str, end: int, found: LogState) -> None:
        if end > 0:
            self._checker.must(inv.same_producers(name, who, end, _producers_of(found), self._states[name, end]))

    # ---- claims

    def claimed(self, producer: str, epoch: int, instance: str) -> None:
        """A process got this epoch."""
        other = self.claims.setdefault((producer, epoch), instance)
        self._checker.must(inv.claimed_once(producer, epoch, {other, instance}))

    # ---- who may write

    def _inherited(self, name: str) -> dict[str, Writer]:
        """What the predecessors' logs say, which are sealed, as far as they existed when the primary read them."""
        found: dict[str, Writer] = {}
        removed = self._found_removed.get(name, set())
        delegating = self._delegating(name)
        for segment in delegating:
            for predecessor in self._checker.predecessors[segment]:
                if predecessor not in delegating and predecessor not in removed:
                    for producer, writer in self._at_seal(predecessor).items():
                        found[producer] = _merged(found.get(producer), writer)
        return found

    def _at_seal(self, name: str) -> Mapping[str, Writer]:
        if name not in self._final:
            end = self._checker.seals[name].end
            entries = (entry for entry, _ in self._logs.get(name, ()) if entry.end <= end)
            self._final[name] = _folded(self._inherited(name), entries)
        return self._final[name]


def _producers_of(state: LogState) -> object:
    """What is compared. Of Kafka's producers the order, too, because the oldest ones are forgotten."""
    kafka = list(state.kafka_producers.snapshot().items())
    return state.producers.snapshot(), state.producers.forgotten_upto, kafka


def _writer_of(entry: Entry, id_: BatchId) -> Writer:
    return Writer(id_.epoch, frozenset({id_.instance}), entry.appended, entry.end)


def _folded(writers: dict[str, Writer], entries: Iterable[Entry]) -> dict[str, Writer]:
    for entry in entries:
        for producer in entry.forgotten:
            writers.pop(producer, None)
        if isinstance(entry.batch.id, BatchId):
            writers[entry.batch.id.producer] = _writer_of(entry, entry.batch.id)
    return writers


def _merged(a: Writer | None, b: Writer) -> Writer:
    if a is None:
        return b._replace(end=0)
    epoch = max(a.epoch, b.epoch)
    instances = frozenset().union(*(w.instances for w in (a, b) if w.epoch == epoch))
    return Writer(epoch, instances, max(a.appended, b.appended))


def _fences(writers: Mapping[str, Writer]) -> dict[str, tuple[int, str]]:
    return {
        name: (w.epoch, min(w.instances) if len(w.instances) == 1 else CONFLICTING_INSTANCES)
        for name, w in writers.items()
    }
