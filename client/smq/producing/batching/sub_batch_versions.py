"""Gives a sub-batch the schema version of the segment that it goes to.

A batch has the version that its encoder had. It may go to a segment of a newer version, because its first segment was
sealed, or because the layout changed after the encoding. It may also go to a segment of an older version that is not
sealed yet, if it needs nothing of what is new.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from smq.producing.batching.partitioning import SubBatch
from smq.producing.batching.row_batch import to_record_batch
from smq.producing.uploads.uploaded_rows import UploadedRows
from smq.transport.schema_versions import SchemaVersions
from smq_core.errors import ReferenceRejected, SchemaMismatch
from smq_core.model.entities import Segment
from smq_core.model.schema_evolution import describe, difference
from smq_storage.chunks.reshaping import Reshaping


def reshaped(sub_batch: SubBatch, segment: Segment, versions: SchemaVersions, topic: str) -> SubBatch:
    """The sub-batch with the columns of the segment, or as it is if these are older and have no place for its values.

    Raises SchemaMismatch, with the difference by column, if a value has no column there, and ReferenceRejected if the
    rows are in an upload, whose columns are what they are.
    """
    if sub_batch.schema_version > segment.schema_version:
        return _narrowed(sub_batch, segment, versions)
    if sub_batch.schema_version == segment.schema_version:
        return sub_batch
    if isinstance(sub_batch.batch, UploadedRows):
        raise ReferenceRejected(
            f"the schema of {topic} changed from version {sub_batch.schema_version} to {segment.schema_version} while "
            f"{sub_batch.batch.num_rows} messages of the upload {sub_batch.batch.file.name!r} were being published. "
            "They are not in the log: write them again",
            upload=sub_batch.batch.file.name,
            field="schema_version",
        )
    batch = to_record_batch(sub_batch.batch)
    reshaping = _reshaping(batch, sub_batch.schema_version, segment, versions)
    lost = reshaping.dropped_values(batch)
    if lost:
        raise _mismatch(sub_batch, segment, versions, topic, lost)
    return replace(sub_batch, batch=reshaping.widen(batch), schema_version=segment.schema_version)


def _narrowed(sub_batch: SubBatch, segment: Segment, versions: SchemaVersions) -> SubBatch:
    """The sub-batch in the older version of the segment, or as it is if that is not possible."""
    if isinstance(sub_batch.batch, UploadedRows) or segment.schema_version not in versions:
        return sub_batch
    present = to_record_batch(sub_batch.batch)
    batch = _reshaping(present, sub_batch.schema_version, segment, versions).narrow(present)
    return sub_batch if batch is None else replace(sub_batch, batch=batch, schema_version=segment.schema_version)


def _reshaping(batch: pa.RecordBatch, version: int, segment: Segment, versions: SchemaVersions) -> Reshaping:
    """``version`` is that of the batch."""
    if version in versions:
        return versions.reshaping(version, segment.schema_version)
    return Reshaping(batch.schema, versions.message_schema(segment.schema_version))


def _mismatch(
    sub_batch: SubBatch, segment: Segment, versions: SchemaVersions, topic: str, lost: dict[str, int]
) -> SchemaMismatch:
    new = versions.schema(segment.schema_version)
    if sub_batch.schema_version in versions:
        changes = difference(versions.schema(sub_batch.schema_version).columns, new.columns)
    else:
        changes = [f"column {name!r} is gone" for name in lost]
    values = ", ".join(f"{name} ({count} of {sub_batch.batch.num_rows} messages)" for name, count in lost.items())
    return SchemaMismatch(
        f"the schema of {topic} changed from version {sub_batch.schema_version} to {segment.schema_version} while "
        f"these messages were on their way. They are not in the log, because they have values in dropped columns: "
        f"{values}. The producer has stopped, so that no later message overtakes them. What changed: "
        f"{'; '.join(changes)}. Open a new producer, and send them without these columns",
        topic=topic,
        expected=", ".join(f"{column.name} {describe(column)}" for column in new.columns),
        difference=tuple(changes),
    )
