"""Plans the micro-batches of one streaming query. Spark keeps the process with it for as long as the query runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from pyspark_smq.options import StreamOptions, Timestamp, micros_of
from pyspark_smq.planning.batch_ranges import check_positions
from pyspark_smq.planning.range_partition import RangePartition, planned_ranges
from pyspark_smq.planning.shared_stores import shared_store
from pyspark_smq.planning.stream_positions import StreamPositions
from pyspark_smq.planning.stream_tasks import divide_into_tasks
from pyspark_smq.planning.wanted import TimeBounds
from smq.reading import OpenedTopic, StateLoader, TopicState
from smq_core.backoff import Backoff
from smq_core.errors import DataLost, StoreDenied, Unavailable, UnknownTopic
from smq_core.model.entities import Positions, RemovedSegment
from smq_core.reading.micro_batches import micro_batch_groups, next_positions, unread_removed_segments
from smq_core.reading.segment_dag import ReadProgress

log = logging.getLogger(__name__)

# A segment joins its predecessors in one task while these have less. That is what Spark reads of files in one task.
JOIN_BYTES = 128 * 1024 * 1024

# Segments share a task while they have less together: a task in a Python worker takes longer than so few rows.
SHARED_TASK_BYTES = 1024 * 1024

# Until a sealed segment shows how large the topic's rows are.
ASSUMED_ROW_BYTES = 1024

# How long a filer may be away before the query fails.
RETRY_SECONDS = 60.0

IDLE_SECONDS, MAX_IDLE_SECONDS = 0.05, 0.5
"""Spark asks at once again if there is nothing new. Each answer takes requests to the filer and to brokers, so that a
query waits for longer and longer while nothing comes."""

T = TypeVar("T")


class StreamPlan:
    """The plan of one query. Use it in one thread. ``sleep`` waits for seconds after each poll that finds nothing."""

    def __init__(
        self, options: StreamOptions, opened: OpenedTopic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._sleep = sleep
        self._options = options
        self._location = opened.location
        self._loader = StateLoader(opened.location, shared_store(opened.location), files_only=options.files_only)
        self._state: TopicState | None = None
        self._target: Mapping[str, int] | None = None
        self._reported: set[str] = set()
        self._idle = Backoff(IDLE_SECONDS, MAX_IDLE_SECONDS)

    def close(self) -> None:
        self._loader.close()

    def initial(self) -> StreamPositions:
        """Where a new query starts: a position in the oldest segment of each partition that is still to be read.

        Raises InvalidOption for a position that the topic does not have.
        """
        state = self._load()
        start = self._options.start
        if start == "latest":
            progress = _at_the_end(state)
        else:
            progress = ReadProgress()
            progress.update(state.nodes())
        if isinstance(start, Mapping):
            check_positions(state.files, start, state.ends)
            progress.positions.update(start)
            progress.update({})
        elif isinstance(start, Timestamp):
            for entry in state.index.entries:  # rows of the others are left out one by one
                if entry.sealed_at < start.micros:
                    progress.advance(entry.name, entry.end)
        for name in progress.readable():
            progress.advance(name, progress.positions.get(name, 0))
        return StreamPositions.of(self._location, progress.committed())

    def stop_at_present_ends(self) -> None:
        """From now on nothing that comes later is read, as ``Trigger.AvailableNow`` wants it."""
        self._target = self._load().ends

    def following(self, start: StreamPositions, max_rows: int | None, max_bytes: int | None) -> StreamPositions:
        """Where the micro-batch from ``start`` ends; ``start`` itself if there is nothing new.

        Raises DataLost if messages that are still to be read are gone, unless the query skips losses.
        """
        state = self._load()
        self._check_losses(start.positions, state)
        row_bytes = _row_bytes(state)
        if max_bytes is not None:
            rows = max(1, max_bytes // row_bytes)
            max_rows = rows if max_rows is None else min(max_rows, rows)
        ends = state.ends
        if self._target is not None:
            ends = {name: min(end, self._target.get(name, 0)) for name, end in ends.items()}
        found = next_positions(state.nodes(), start.positions, ends, max_rows, max(1, JOIN_BYTES // row_bytes))
        if not micro_batch_groups(state.nodes(), start.positions, found):
            self._sleep(self._idle.increase())
            return start
        self._idle.reset()
        return StreamPositions.of(self._location, found)

    def latest(self) -> StreamPositions | None:
        """The end of the topic when it was looked at last, by which Spark shows how far a query is behind."""
        if self._state is None:
            return None
        return StreamPositions.of(self._location, _at_the_end(self._state).committed())

    def partitions(self, start: StreamPositions, end: StreamPositions) -> list[RangePartition]:
        """What each task reads. Raises DataLost as ``following``."""
        state = self._state
        if state is None or not end.positions.keys() <= state.segments().keys():
            state = self._load()  # the first micro-batch after a restart was planned by another process
        self._check_losses(start.positions, state)
        try:
            groups = micro_batch_groups(state.nodes(), start.positions, end.positions)
        except KeyError as error:
            raise _removed(str(error.args[0]), start.positions.get(error.args[0], 0)) from None
        options = self._options
        tasks = divide_into_tasks(groups, max(1, SHARED_TASK_BYTES // _row_bytes(state)), options.min_partitions)
        return [
            RangePartition(
                self._location,
                planned_ranges(state, task, options.files_only),
                "fail" if options.fail_on_data_loss else "skip",
                appended=TimeBounds(micros_of(options.start)),
            )
            for task in tasks
        ]

    def _load(self) -> TopicState:
        """The topic now. A store that is away is waited for. Raises UnknownTopic, StoreDenied, Unavailable."""
        self._state = _retried(self._loader.load, RETRY_SECONDS)
        return self._state

    def _check_losses(self, positions: Positions, state: TopicState) -> None:
        losses = [_removed(it.name, positions.get(it.name, 0), it.end) for it in _unread(positions, state)]
        losses += [
            _sealed_before(name, node.end, positions[name])
            for name, node in state.nodes().items()
            if node.end is not None and positions.get(name, 0) > node.end
        ]
        for loss in losses:
            if self._options.fail_on_data_loss:
                raise loss
            if loss.segment not in self._reported:
                self._reported.add(loss.segment)
                log.warning("%s", loss.message)


def _at_the_end(state: TopicState) -> ReadProgress:
    """The progress of a reader that has read everything."""
    progress = ReadProgress()
    progress.update(state.nodes())
    progress.skip_to_latest()
    for name in progress.readable():
        progress.advance(name, state.ends[name])
    return progress


def _unread(positions: Positions, state: TopicState) -> list[RemovedSegment]:
    return unread_removed_segments(positions, state.index.removed_segments)


def _row_bytes(state: TopicState) -> int:
    """About how many stored bytes a row has, by the sealed segments."""
    rows = sum(entry.end for entry in state.index.entries)
    return max(1, sum(entry.bytes for entry in state.index.entries) // rows) if rows else ASSUMED_ROW_BYTES


def _removed(segment: str, start: int, end: int | None = None) -> DataLost:
    return DataLost(
        f"retention has removed {segment} before the query had read its messages from offset {start} on: the query is "
        "slower than the topic's retention. Keep messages longer (spec.retention), or give the query more cores. To go "
        'on without these messages, set the option failOnDataLoss to "false"',
        segment=segment,
        start=start,
        stop=end if end is not None else start,
        at_least=end is None,
    )


def _sealed_before(segment: str, end: int, position: int) -> DataLost:
    return DataLost(
        f"{segment} ends at offset {end}, and the query has read up to {position}: messages that it has read were lost "
        'with all of their replicas. To go on, set the option failOnDataLoss to "false"',
        segment=segment,
        start=end,
        stop=position,
    )


def _retried(load: Callable[[], T], seconds: float) -> T:
    deadline, backoff = time.monotonic() + seconds, Backoff(0.1, 5.0)
    while True:
        try:
            return load()
        except (UnknownTopic, StoreDenied):
            raise
        except Unavailable as error:
            if time.monotonic() > deadline:
                raise
            log.warning("the topic's state cannot be read, and is tried again: %s", error.message)
            time.sleep(backoff.increase())
