"""``pyspark_smq.read``: a topic as one DataFrame, with Spark's own Parquet scan for all that is in files.

What is read is fixed when it is called: files and offsets. So a DataFrame gives the same rows whenever it is run, while
producers write on. Only what is in no file yet, or in files that Spark cannot read natively, comes by the data source.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from pyspark_smq.errors import InvalidOption
from pyspark_smq.options import Connection, Start, timestamp_of
from pyspark_smq.planning.batch_ranges import ranges_to_read
from pyspark_smq.planning.shared_pin import begin_read, check_pin
from pyspark_smq.planning.shared_stores import shared_store
from pyspark_smq.planning.wanted import TimeBounds, Wanted, key_bounds, time_bounds
from pyspark_smq.spark_types import OFFSET, SEGMENT, spark_schema
from pyspark_smq.spark_version import check_spark
from pyspark_smq.table import frames
from pyspark_smq.table.file_plan import FilePlan, plan_files
from pyspark_smq.table.filters import filtered_columns, row_filter
from pyspark_smq.table.pins import KEEPER, KeptPin
from pyspark_smq.table.s3a import configure, hadoop_configuration
from smq.reading import StateLoader, open_topic
from smq_core.file_lists.file_list import FileEntry
from smq_core.model.entities import SECOND
from smq_core.reading.pins import MIN_LIFETIME
from smq_storage.catalog.stored_pins import MAX_OWNER_LENGTH
from smq_storage.chunks.parquet_codec import decode_footer
from smq_storage.chunks.parquet_ranges import read_tail
from smq_storage.tables.segment_files import StoredSegment, files_between

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from smq.reading import OpenedTopic, TopicLocation
    from smq_storage.object_store.store import Store

log = logging.getLogger(__name__)

SEGMENTS, REQUESTS = 8, 32
"""How many segments are looked at at once, and how many footers of their chunks are asked for at once."""

# Shorter than what a leader lets a pin become, unless its ``--max-pin-age`` is set.
PIN_FOR = timedelta(hours=12)


def read(
    spark: SparkSession,
    topic: str,
    *,
    leader: str | None = None,
    filer: str | None = None,
    filer_endpoint: str | None = None,
    filer_region: str | None = None,
    filer_access_key: str | None = None,
    filer_secret_key: str | None = None,
    filer_session_token: str | None = None,
    ca_file: str | None = None,
    token_file: str | None = None,
    cert_file: str | None = None,
    key_file: str | None = None,
    namespace: str = "default",
    via: str | None = None,
    columns: Sequence[str] | None = None,
    start: Literal["earliest"] | datetime | Mapping[str, int] = "earliest",
    end: Literal["latest"] | datetime | Mapping[str, int] = "latest",
    timestamp: tuple[datetime | None, datetime | None] | None = None,
    key: tuple[Any, Any] | None = None,
    segments: Sequence[str] | None = None,
    fail_on_data_loss: bool = True,
    pin_for: timedelta = PIN_FOR,
) -> DataFrame:
    """All messages of a topic from ``start`` to ``end``, as a DataFrame with the columns of its newest schema.

    The rows are the same whenever the DataFrame is run. Its files are pinned until :func:`release`, until the session
    stops, or for ``pin_for``; an action after that fails, and says to read again. In a secure release a program without
    a key of the filer reads the files by ``format("smq")`` inside of the DataFrame, and without a pin.

    leader, namespace, via, filer..., ca_file, token_file, cert_file, key_file: as the options of ``format("smq")`` and
        the arguments of ``smq.connect``.
    columns: those that the DataFrame has, in this order; None means all, with ``_segment`` and ``_offset``.
    start, end: a time goes by when a message was appended, ``start`` inclusive and ``end`` exclusive (naive means UTC).
        Positions are ``{segment: next offset}``.
    timestamp: (from, to) of the column ``timestamp``, the producer's time; ``to`` is exclusive. None is unbounded.
    key: (from, to) of the key column, both inclusive; None is unbounded.
    segments: only these. Files that have nothing of what is wanted are not opened.
    fail_on_data_loss: raises DataLost if messages within the range are gone; otherwise a warning is logged.

    Raises InvalidOption and other InvalidRequest, UnknownTopic, Unavailable, StoreDenied, DataLost, CorruptChunk,
    CorruptDocument, and SparkNotSupported if Spark lacks S3A or is of an older version.
    """
    check_spark(spark.version)
    connection = Connection(
        topic,
        leader,
        namespace,
        via,
        filer,
        filer_endpoint,
        filer_region,
        filer_access_key,
        filer_secret_key,
        filer_session_token,
        ca_file,
        token_file,
        cert_file,
        key_file,
    )
    appended = TimeBounds(
        timestamp_of(start).micros if isinstance(start, datetime) else None,
        timestamp_of(end).micros if isinstance(end, datetime) else None,
    )
    first: Start = "earliest" if isinstance(start, datetime) else start
    last: Start = "latest" if isinstance(end, datetime) else end
    _check(columns, first, last, pin_for)
    opened = open_topic(connection.topic, **connection.arguments())
    key_type = opened.chunk_schema.field(opened.key).type if opened.key is not None else None
    wanted = Wanted(appended, time_bounds("timestamp", timestamp), key_bounds(key, key_type))
    schema = spark_schema(opened.chunk_schema, columns)
    filtered = [name for name in filtered_columns(wanted, opened.key) if name not in schema.fieldNames()]
    whole = spark_schema(opened.chunk_schema, [*schema.fieldNames(), *filtered])

    root = _native_root(spark, opened.location)
    store = shared_store(opened.location)
    owner = f"pyspark_smq.read in {spark.sparkContext.appName}"[:MAX_OWNER_LENGTH]
    with ExitStack() as on_failure:
        with StateLoader(opened.location, store) as loader:
            state, pinned = begin_read(store, opened.location, loader, owner)
        if pinned is not None:
            on_failure.enter_context(pinned)
        pin_id = pinned.pin_id if pinned is not None else None
        ranges = ranges_to_read(state.files, state.ends, first, last, segments, fail_on_data_loss)
        files = _files(store, state.segments(), ranges, opened.key)
        plan = plan_files(ranges, files, wanted, natively=root is not None)
        versions = _versions(store, plan, opened)
        frame = _frame(spark, root or "", plan, versions, whole, connection, opened.location, pin_id)
        condition = row_filter(wanted, opened.key, key_type)
        if condition is not None:
            frame = frame.where(condition)
        if filtered:
            frame = frame.select(*(f"`{name}`" for name in schema.fieldNames()))
        on_failure.pop_all()
    if pinned is not None:
        context = spark.sparkContext
        KEEPER.keep(KeptPin(pinned, time.monotonic() + pin_for.total_seconds(), lambda: context._jsc is None))
    frame._smq_pin = pin_id or ""
    return frame


def release(frame: DataFrame) -> None:
    """Lets the files of a DataFrame from :func:`read` go. It, and what was made of it, cannot be run again.

    Pass the DataFrame that ``read`` returned. Raises InvalidOption for any other.
    """
    pin_id = getattr(frame, "_smq_pin", None)
    if pin_id is None:
        raise InvalidOption("release takes the DataFrame that pyspark_smq.read returned, not one that was made of it")
    if pin_id:  # otherwise the credentials may not write pins
        KEEPER.release(pin_id)


def _native_root(spark: SparkSession, location: TopicLocation) -> str | None:
    """The root of the files for Spark's own scan. None if the data source reads them, by URLs of the leader."""
    if not location.needs_signed_reads:
        return configure(spark, location.store)
    hadoop_configuration(spark)  # refuses a remote session, as configure does
    log.warning(
        "Python workers read the files of %s, by URLs of the leader, and not Spark's own scan: S3A needs a key of the "
        "filer (filer_access_key, filer_secret_key), also one of `smq auth filer-keys` (filer_session_token)",
        location.topic,
    )
    return None


def _files(
    store: Store, segments: Mapping[str, StoredSegment], ranges: Mapping[str, tuple[int, int]], key: str | None
) -> dict[str, list[FileEntry]]:
    """Those of the ranges, by segment. Looks at several segments at once."""
    with (
        ThreadPoolExecutor(SEGMENTS, "smq-table-segments") as by_segment,
        ThreadPoolExecutor(REQUESTS, "smq-table-requests") as requests,
    ):

        def files_of(name: str) -> list[FileEntry]:
            return list(files_between(store, segments[name], *ranges[name], key, requests))

        return dict(zip(ranges, by_segment.map(files_of, ranges), strict=True))


def _frame(
    spark: SparkSession,
    root: str,
    plan: FilePlan,
    versions: Mapping[int, StructType],
    schema: StructType,
    connection: Connection,
    location: TopicLocation,
    pin_id: str | None,
) -> DataFrame:
    if plan.rest:  # its tasks look at the pin themselves
        rest = {**connection.spark_options(), "ranges": json.dumps(plan.rest)}
        rest |= {"pin": pin_id} if pin_id is not None else {}
        parts = [spark.read.format("smq").options(**rest, columns=",".join(schema.fieldNames())).load()]
    else:
        parts = [frames.check_frame(spark, partial(_check_pin, location, pin_id), schema)]
    for version, paths in plan.chunks.items():
        parts.append(frames.chunk_frame(spark, root, paths, versions[version], schema))
    for version, paths in plan.compacted.items():
        parts.append(frames.compacted_frame(spark, root, paths, versions[version], schema))
    for version, uploads in plan.uploads.items():
        parts.append(frames.upload_frame(spark, root, uploads, versions[version], schema))
    return frames.union(parts)


def _versions(store: Store, plan: FilePlan, opened: OpenedTopic) -> dict[int, StructType]:
    """The stored columns of each version of the topic's schema that files of the plan have.

    The layout forgets versions that only sealed segments have, and every file has its own. So one file of each is read,
    but for the newest version.
    """
    one_of_each = {version: rows[0].path for version, rows in plan.uploads.items()}
    one_of_each |= {version: paths[0] for version, paths in (*plan.compacted.items(), *plan.chunks.items())}
    found = {}
    for version, path in one_of_each.items():
        if version == opened.schema.version:
            stored = opened.chunk_schema
        else:
            stored = decode_footer(read_tail(store, path).data).schema.to_arrow_schema()
        found[version] = spark_schema(pa.schema([it for it in stored if it.name not in (SEGMENT, OFFSET)]))
    return found


def _check_pin(location: TopicLocation, pin_id: str | None) -> None:
    if pin_id is not None:
        check_pin(shared_store(location), location, pin_id)


def _check(columns: Sequence[str] | None, start: object, end: object, pin_for: timedelta) -> None:
    if isinstance(columns, str) or (columns is not None and len(set(columns)) != len(columns)):
        raise InvalidOption(f"columns must be different names, not {columns!r}", option="columns")
    for name, bound, words in (("start", start, ("earliest",)), ("end", end, ("latest",))):
        positions = isinstance(bound, Mapping) and all(
            isinstance(segment, str) and type(offset) is int and offset >= 0 for segment, offset in bound.items()
        )
        if not positions and bound not in words:
            raise InvalidOption(
                f"{name} must be {' or '.join(map(repr, words))}, a datetime, or positions {{segment: next offset}}, "
                f"not {bound!r}",
                option=name,
            )
    if pin_for < timedelta(seconds=MIN_LIFETIME // SECOND):
        raise InvalidOption(f"pin_for must be {MIN_LIFETIME // SECOND} seconds or longer, not {pin_for}")
