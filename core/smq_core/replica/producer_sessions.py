"""The producers of a primary's log: who may write, whose streams are open, and whom to forget.

The log determines each producer's state, so that every replica computes the same (``ProducerMap``). Only the primary
knows which streams are open. So it decides whom to forget, and the next log entry carries the decision.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from smq_core.errors import ProducerFenced, Unavailable
from smq_core.model.chunk_info import CONFLICTING_INSTANCES, Producers, SealOutcome, are_different_instances
from smq_core.model.entities import Micros
from smq_core.replica.log_entries import ReplicaConfig
from smq_core.replica.producer_inheritance import inherited_producers
from smq_core.replica.producer_map import ProducerMap

MAX_FORGOTTEN_PER_ENTRY = 64


@dataclass(frozen=True, slots=True)
class OpenedProducer:
    """The primary's answer to a producer that opens a stream.

    ``last_sequence`` is the last sequence of this producer in the log, acked or not; None if there is none. ``end`` is
    the log's end, ``forgotten_upto`` as in ``ProducerMap``.
    """

    last_sequence: int | None
    end: int = 0
    forgotten_upto: int = 0


@dataclass(slots=True)
class _ProducerStreams:
    """The streams of one producer that are not closed yet, and the newest one of each epoch and instance.

    A newest stream stays in ``newest`` after it was closed, so that an older one does not take its place.
    """

    unclosed: list[object] = field(default_factory=list)
    newest: dict[tuple[int, str], object] = field(default_factory=dict)


class ProducerSessions:
    """``producers`` is the state at the log's end. The other parts of this class are used at a primary only."""

    def __init__(self, config: ReplicaConfig, producers: ProducerMap) -> None:
        self.producers = producers
        self.unread_predecessors = set(config.predecessors)
        self._limits = config.producer_limits
        self._read: dict[str, Producers] = {}
        self._to_inherit: Producers | None = None
        self._streams: dict[str, _ProducerStreams] = {}
        self._closed: dict[str, None] = {}
        """Producers without an open stream, the one that closed its stream first in front."""

    # ---- predecessors

    def predecessor_sealed(self, outcome: SealOutcome) -> None:
        """Takes in a predecessor's outcome. After the last one, the producers' epochs and instances are inherited.

        A predecessor that ended without knowing its own predecessors' producers adds these to the unread ones.
        """
        if outcome.segment not in self.unread_predecessors:
            return
        self._read[outcome.segment] = outcome.producers
        self.unread_predecessors.update(name for name in outcome.uninherited if name not in self._read)
        self.unread_predecessors.discard(outcome.segment)
        if not self.unread_predecessors:
            inherited = inherited_producers(self._read.values())
            self._read.clear()
            self.producers.inherit(inherited)
            self._to_inherit = inherited or None
            self._closed = dict.fromkeys(name for name in inherited if name not in self._streams)

    def take_inherited(self) -> Producers | None:
        """What the first log entry carries; None for every later one."""
        inherited, self._to_inherit = self._to_inherit, None
        return inherited

    # ---- streams

    def require_current(self, producer: str, epoch: int, instance: str) -> None:
        """Raises ProducerFenced if another process writes as this producer, in a newer epoch or in the same one."""
        known = self.producers.get(producer)
        if known is None or epoch > known.epoch:
            return
        if epoch < known.epoch:
            raise ProducerFenced(
                f"producer {producer} is at epoch {known.epoch}; this process has epoch {epoch} and must stop",
                epoch=known.epoch,
            )
        if known.instance == CONFLICTING_INSTANCES or are_different_instances(known.instance, instance):
            raise ProducerFenced(
                f"another process writes as producer {producer} in epoch {epoch}. Give each process its own "
                "producer_id; to replace a process, start the new one without epoch="
            )

    def require_newest(self, producer: str, epoch: int, instance: str, stream: object) -> None:
        """Raises Unavailable if this process has opened a newer stream: batches of this one come too late.

        The sequences of a late batch may have got another meaning, so this also holds after the newer one was closed.
        """
        streams = self._streams.get(producer)
        if streams is not None and streams.newest.get((epoch, instance), stream) is not stream:
            raise Unavailable(f"producer {producer} has opened a newer stream, which replaces this one")

    def opened(self, producer: str, epoch: int, instance: str, stream: object) -> None:
        """A stream of this producer is open: it is not forgotten before all of them are closed."""
        streams = self._streams.setdefault(producer, _ProducerStreams())
        streams.unclosed.append(stream)
        streams.newest[epoch, instance] = stream
        self._closed.pop(producer, None)

    def closed(self, producer: str, stream: object) -> None:
        """A stream ended. Ignored for one that was not opened."""
        streams = self._streams.get(producer)
        if streams is not None and stream in streams.unclosed:
            streams.unclosed.remove(stream)
            if not streams.unclosed:
                del self._streams[producer]
                if self.producers.get(producer) is not None:
                    self._closed[producer] = None

    # ---- forgetting

    def take_forgotten(self, appending: str, now: Micros, watermark: int) -> tuple[str, ...]:
        """The producers that the entry appended now drops, at most ``MAX_FORGOTTEN_PER_ENTRY``.

        A producer is kept while a stream of it is open, while its last batch is above the watermark, and if it is the
        one that appends.
        """
        if appending not in self._streams:
            self._closed.pop(appending, None)
            self._closed[appending] = None
        forgotten: list[str] = []
        total = len(self.producers) + (self.producers.get(appending) is None)
        while len(forgotten) < MAX_FORGOTTEN_PER_ENTRY:
            name = next(iter(self._closed), appending)
            if name == appending:
                break
            state = self.producers.get(name)
            if state is not None:
                is_idle = now - state.appended > self._limits.idle
                if not is_idle and total - len(forgotten) <= self._limits.count:
                    break
                if state.recent and state.recent[-1] >= watermark:
                    break
                forgotten.append(name)
            del self._closed[name]
        return tuple(forgotten)
