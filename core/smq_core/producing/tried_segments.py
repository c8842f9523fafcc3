"""Which segments may have rows of a committed atomic publish, from the layout and the index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from smq_core.model.atomic_publish import AppState, LayoutMark
from smq_core.model.chunk_info import Producers
from smq_core.model.entities import Layout, Phase, SealedSegment, Segment
from smq_core.producing.roll_forward import TriedSegment


@dataclass(frozen=True, slots=True)
class TriedSegments:
    """All segments that may have rows of the publish, by number. Those in ``sealed`` have seal chunks."""

    sealed: Mapping[int, SealedSegment]
    living: Mapping[int, Segment]

    @property
    def writable(self) -> dict[int, Segment]:
        """Those that accept batches. Their predecessors are sealed."""
        return {n: it for n, it in self.living.items() if it.phase is Phase.OPEN and not it.successors}

    def with_sequences(self, last_sequences: Mapping[int, int]) -> list[TriedSegment]:
        """For the plan; ``last_sequences`` has those of all sealed segments, by number."""
        sealed = [TriedSegment(n, it.range, last_sequences[n]) for n, it in self.sealed.items()]
        return [*sealed, *(TriedSegment(n, it.range) for n, it in self.living.items())]


def find_tried_segments(mark: LayoutMark, layout: Layout, entries: Iterable[SealedSegment]) -> TriedSegments:
    """``entries`` are those of an index that is not older than the layout: it has every segment that has left it.

    Retention removes nothing while a publish is unfinished. So a segment that it has removed was sealed before the
    commit, if the publish was still unfinished after the index was read. It may have any number, because the mark may
    be of a layout from before the commit.
    """
    sealed = {it.number: it for it in entries if mark.has(it.number)}
    living = {it.number: it for it in layout.segments if mark.has(it.number) and it.number not in sealed}
    return TriedSegments(sealed, living)


def last_sequence(producers: Producers, app: AppState) -> int | None:
    """The last batch of the app's publish in a log with these producers; None if they have none of it.

    The log may have batches all the same if it forgets producers.
    """
    state = producers.get(app.producer)
    return state.last_sequence if state is not None and state.epoch == app.epoch else None
