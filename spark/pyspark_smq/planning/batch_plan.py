"""Plans a batch read: which offsets, under which pin, and which task reads what."""

from __future__ import annotations

from contextlib import ExitStack

from pyspark.sql.types import StructType

from pyspark_smq.errors import InvalidOption
from pyspark_smq.options import ReadOptions, Timestamp, micros_of
from pyspark_smq.planning.batch_ranges import ranges_to_read
from pyspark_smq.planning.partition_sizes import divide
from pyspark_smq.planning.range_partition import RangePartition, planned_ranges
from pyspark_smq.planning.range_sizes import sized_ranges
from pyspark_smq.planning.shared_pin import begin_read, check_pin
from pyspark_smq.planning.shared_stores import shared_store
from pyspark_smq.planning.wanted import TimeBounds, Wanted
from pyspark_smq.spark_types import check_schema
from smq.reading import OpenedTopic, StateLoader, TopicLocation, TopicState, open_topic
from smq_core.errors import DataLost
from smq_core.reading.segment_dag import is_removed
from smq_core.reading.segment_ranges import SegmentRange
from smq_storage.object_store.store import Store

EVERYTHING_WANTED = Wanted()
OWNER = "Spark batch read"


def open_for_read(options: ReadOptions, schema: StructType) -> OpenedTopic:
    """The topic, which can be read with this schema. Raises UnreadableSchema, and what ``open_topic`` raises."""
    opened = open_topic(options.connection.topic, **options.connection.arguments())
    check_schema(schema, opened.chunk_schema)
    return opened


def plan_batch(options: ReadOptions, opened: OpenedTopic, wanted: Wanted = EVERYTHING_WANTED) -> list[RangePartition]:
    """What each task reads. Files without anything that is ``wanted`` are left out.

    Raises InvalidOption for positions that the topic does not have, DataLost, PinExpired, StoreUnavailable and other
    Unavailable, StoreDenied, UnknownTopic.
    """
    appended = TimeBounds(micros_of(options.start), micros_of(options.end))
    store = shared_store(opened.location)
    with ExitStack() as on_failure:
        state, pin = _state(options, opened.location, store, on_failure)
        ranges = _ranges(options, state)
        wanted = Wanted(wanted.appended.both(appended), wanted.timestamp, wanted.key)
        sized = sized_ranges(store, state.segments(), ranges, wanted)
        divided = divide(sized, options.max_partition_bytes, options.min_partitions)
        if options.pin is not None and not divided:
            divided = [[]]  # a task without rows that looks at the pin
        on_failure.pop_all()
    return [
        RangePartition(
            opened.location,
            planned_ranges(state, part, options.files_only),
            "fail" if options.fail_on_data_loss else "skip",
            pin,
            pin is not None and options.pin is None,
            appended,
            options.pin_lifetime,
        )
        for part in divided
    ]


def _state(
    options: ReadOptions, location: TopicLocation, store: Store, on_failure: ExitStack
) -> tuple[TopicState, str | None]:
    """The topic's state, and the pin that keeps the files that it names."""
    with StateLoader(location, store, files_only=options.files_only) as loader:
        if options.pin is not None:
            check_pin(store, location, options.pin)
            return loader.load(), options.pin
        state, pinned = begin_read(store, location, loader, OWNER, options.pin_lifetime)
        if pinned is None:
            return state, None
        on_failure.enter_context(pinned)  # from now on the tasks keep it, and it ends by itself after the last one
        return state, pinned.pin_id


def _ranges(options: ReadOptions, state: TopicState) -> list[SegmentRange]:
    if options.ranges is not None:
        found = [SegmentRange(name, *pair) for name, pairs in options.ranges.items() for pair in pairs]
        for it in found:
            _check_range(state, it)
        return [it for it in found if it.count]
    start = "earliest" if isinstance(options.start, Timestamp) else options.start
    end = "latest" if isinstance(options.end, Timestamp) else options.end
    if start == "latest":
        return []
    chosen = ranges_to_read(state.files, state.ends, start, end, None, options.fail_on_data_loss)
    return [SegmentRange(name, *pair) for name, pair in chosen.items()]


def _check_range(state: TopicState, wanted: SegmentRange) -> None:
    end = state.ends.get(wanted.segment)
    if end is None and is_removed(wanted.segment, state.index.removed):
        raise DataLost(
            f"retention has removed {wanted.segment}, of which the messages {wanted.start} to {wanted.stop - 1} were "
            "to be read",
            segment=wanted.segment,
            start=wanted.start,
            stop=wanted.stop,
        )
    if end is None:
        raise InvalidOption(f"the topic {state.topic} has no segment {wanted.segment!r}", option="ranges")
    if wanted.segment in state.sealed and wanted.stop > end:
        raise InvalidOption(
            f"the range {wanted.start} to {wanted.stop} of {wanted.segment} is past its end, {end}", option="ranges"
        )
