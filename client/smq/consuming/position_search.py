"""Finds positions of a topic: its latest ones, those at a time, those a number of messages on."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from smq.consuming.saved_positions import without_losses
from smq.consuming.segment_choice import ALL_SEGMENTS, SegmentChoice
from smq.reading.range_reader import RangeReader
from smq.reading.topic_location import location_of
from smq.reading.topic_state import StateLoader, TopicState
from smq.transport.topic_view import TopicView
from smq_core.errors import InvalidRequest
from smq_core.model.entities import Micros
from smq_core.reading.position_rules import check_positions, impossible_positions, shifted
from smq_core.reading.segment_dag import ReadProgress
from smq_storage.catalog.paths import first_offset
from smq_storage.chunks.chain import ChunkChain
from smq_storage.chunks.schemas import TIMESTAMP
from smq_storage.tables.segment_files import StoredSegment, load_file_list

# between the filer, which dates files, and the brokers, which date messages
MAX_CLOCK_SKEW = timedelta(minutes=2)


class PositionSearch:
    """Reads the topic's present state at its first use, and closes its connections at the end of the block."""

    def __init__(self, view: TopicView, choice: SegmentChoice = ALL_SEGMENTS) -> None:
        self._view = view
        self._choice = choice
        self._state: TopicState | None = None
        location = location_of(view)
        self._loader = StateLoader(location, view.store.open())
        self._reader = RangeReader(location, view.store.open(), on_loss="skip")

    def __enter__(self) -> PositionSearch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loader.close()

    @property
    def state(self) -> TopicState:
        """The topic as it was at the first use. Raises UnknownTopic, Unavailable."""
        if self._state is None:
            self._state = self._loader.load()
        return self._state

    def resolve(self, to: Literal["earliest", "latest"] | datetime | Mapping[str, int]) -> dict[str, int]:
        """The positions of a reader that begins there. A time without a zone is in UTC.

        Raises InvalidRequest for positions that no reader can have, UnknownTopic, Unavailable.
        """
        if isinstance(to, Mapping):
            self.check(to)
            return dict(to)
        if to == "earliest":
            return {}
        if to == "latest":
            return self._positions(None)
        assert isinstance(to, datetime)
        return self._positions(micros(to))

    def check(self, positions: Mapping[str, int]) -> None:
        """Raises InvalidRequest if no reader can have these positions; the message says which are possible."""
        state = self.state
        check_positions(self._view.name, state.nodes(), positions, state.ends, state.index.removed)

    def check_saved(self, positions: Mapping[str, int]) -> None:
        """As :meth:`check`, for positions at which a reader ended, which may be wrong because messages were lost."""
        state = self.state
        checked = without_losses(positions, state.index.entries, state.index.removed)
        problems = impossible_positions(self._view.name, state.nodes(), checked, state.ends, state.index.removed)
        if problems:
            raise InvalidRequest("; ".join(problems))

    def shifted(self, positions: Mapping[str, int], by: int) -> dict[str, int]:
        """See ``position_rules.shifted``."""
        return shifted(self.state.nodes(), positions, self.state.ends, by)

    def offset_at(self, segment: str, at: Micros) -> int:
        """The offset of the first message of the segment that was appended at or after this time, or its end."""
        state = self.state
        stored, end = state.segments()[segment], state.ends[segment]
        sealed = next((it for it in state.index.entries if it.name == segment), None)
        if sealed is not None and sealed.sealed_at < at:
            return end
        first = min(self._first_file(stored, at), end)
        reading = self._reader.read(
            stored, first, end, ["appended"], state.replicas(segment), state.flushed.get(segment)
        )
        for offset, table in reading:
            early = pc.sum(pc.less(table.column("appended"), pa.scalar(at, TIMESTAMP))).as_py() or 0
            if early < table.num_rows:
                return offset + int(early)
        return end

    def _positions(self, at: Micros | None) -> dict[str, int]:
        """The positions at a time, or now: from the oldest segments on, as a reader would come there."""
        state, progress = self.state, ReadProgress()
        progress.update(self._choice.among(dict(state.nodes())))
        visited: set[str] = set()
        while pending := [name for name in progress.readable() if name not in visited]:
            for name in pending:
                visited.add(name)
                progress.advance(name, state.ends[name] if at is None else self.offset_at(name, at))
        return dict(progress.committed())

    def _first_file(self, segment: StoredSegment, at: Micros) -> int:
        """The first offset of a file before which all messages were appended before this time."""
        file_list = load_file_list(self._view.store.open(), segment)
        if file_list is not None:
            return file_list.first_since(at)
        found = 0
        time = datetime.fromtimestamp(at / 1e6, UTC)
        for listed in ChunkChain(self._view.store.open(), segment.topic, segment.uid, segment.name).files():
            first = first_offset(listed.path)
            if first is not None and listed.modified + MAX_CLOCK_SKEW < time:
                found = max(found, first)
        return found


def micros(at: datetime) -> Micros:
    """The time in microseconds; one without a zone is in UTC."""
    return round((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1_000_000)
