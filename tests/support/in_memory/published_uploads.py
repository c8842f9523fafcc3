"""What a producer of a topic in memory has uploaded, and the references that its streams got."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq

from smq_core.errors import ReferenceRejected
from smq_core.model.entities import Segment
from smq_core.model.reference import Reference
from smq_proto.error_conversion import error_to_pb
from smq_proto.v1 import data_pb2 as pb
from smq_storage.catalog import paths
from smq_storage.uploads.uploaded_files import read_upload_footer
from support.in_memory.producer_sessions import DrivenSession
from support.in_memory.topic import PARTITIONS, TopicInMemory
from support.waiting import eventually


def keyed(rows: int, first: int = 0) -> pa.Table:
    numbers = range(first, first + rows)
    return pa.table({"key": [b"k%d" % (n % 50) for n in numbers], "value": [b"v%d" % n for n in numbers]})


def uploads(topic: TopicInMemory) -> list[str]:
    return [it.path for it in topic.files.list(paths.uploads_folder("uid"))]


def rows_at(topic: TopicInMemory, reference: Reference) -> pa.Table:
    """The rows that a reader finds, after the checks of a primary."""
    path = paths.uploaded_file("uid", reference.upload)
    stored = read_upload_footer(topic.files, path)
    footer = stored.parsed.footer
    assert stored.etag == reference.etag and 0 < reference.bytes <= stored.size
    assert footer.partitions_of(reference.first_row, reference.rows) == (
        reference.partition_min, reference.partition_max
    )  # fmt: skip
    own = sum(n for p, n in footer.partitions if reference.partition_min <= p <= reference.partition_max)
    assert own == reference.rows
    table = pq.read_table(io.BytesIO(topic.files.get(path).data)).slice(reference.first_row, reference.rows)
    times = table.column("timestamp").cast(pa.int64()).to_numpy()
    assert (reference.timestamp_min, reference.timestamp_max) == (times.min(), times.max())
    return table


def two_segments(topic: TopicInMemory) -> list[Segment]:
    halves = [topic.segment(1, 0, 3), topic.segment(2, 3, PARTITIONS)]
    topic.set_layout(halves)
    return halves


def streams_of(*segments: Segment) -> list[DrivenSession]:
    """The streams to these segments, opened."""
    eventually(lambda: {s.name for s in segments} <= {it.segment.name for it in DrivenSession.opened_sessions})
    found = [next(it for it in DrivenSession.opened_sessions if it.segment.name == s.name) for s in segments]
    for it in found:
        it.opened()
    return found


def reject(driven: DrivenSession, sequence: int, problem: str) -> None:
    error = error_to_pb(ReferenceRejected(problem, upload="u", field="age"))
    driven.reply(rejected=pb.ProducerReply.Rejected(sequence=sequence, error=error))
