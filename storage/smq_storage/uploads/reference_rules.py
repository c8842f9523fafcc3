"""What must hold of a reference before its rows are published. Nothing here reads a file or a clock.

Brokers and the leader read no rows. What only the rows show is found by readers, which name the file.
"""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa

from smq_core.errors import ReferenceRejected
from smq_core.model.entities import SECOND, Micros
from smq_core.model.keyspace import KeyRange
from smq_core.model.reference import Reference
from smq_storage.uploads.upload_format import MAX_ROW_GROUP_BYTES, ParsedUpload, UploadFooter

HOUR: Micros = 3600 * SECOND


def check_reference(reference: Reference, segment: str, partitions: KeyRange, schema_version: int) -> None:
    """What the reference alone shows. Raises ReferenceRejected."""
    low, high = reference.partition_min, reference.partition_max
    if not reference.rows:
        raise _rejected(reference, "rows", "it names no rows")
    if not (partitions.start <= low <= high < partitions.stop):
        raise _rejected(reference, "partitions", f"{segment} covers {partitions}, the reference {low} to {high}")
    if reference.timestamp_min > reference.timestamp_max:
        raise _rejected(reference, "timestamps", "the lowest timestamp is after the highest one")
    if reference.schema_version != schema_version:
        raise _rejected(
            reference,
            "schema_version",
            f"{segment} has schema version {schema_version}, the reference {reference.schema_version}: upload the rows "
            "again with the segment's columns",
        )


def check_upload(reference: Reference, upload: ParsedUpload, size: int, topic_uid: str, schema: pa.Schema) -> None:
    """What the upload's Parquet footer shows. ``size`` is the file's, in bytes. Raises ReferenceRejected."""
    footer = upload.footer
    if footer.topic_uid != topic_uid:
        raise _rejected(reference, "topic_uid", f"the file was uploaded for the topic with the uid {footer.topic_uid}")
    if footer.schema_version != reference.schema_version:
        raise _rejected(reference, "schema_version", f"the file has schema version {footer.schema_version}")
    if upload.schema.names != schema.names or upload.schema.types != schema.types:
        raise _rejected(
            reference, "columns", f"the file has the columns ({_columns(upload.schema)}), expected ({_columns(schema)})"
        )
    if upload.largest > MAX_ROW_GROUP_BYTES:
        raise _rejected(
            reference,
            "row_groups",
            f"a row group may take {upload.largest} bytes in memory, at most {MAX_ROW_GROUP_BYTES} are allowed: write "
            "fewer rows into each, and text and binary columns without a dictionary",
        )
    _check_footer(reference, upload)
    expected = footer.rows_of(KeyRange(reference.partition_min, reference.partition_max + 1))
    found = footer.partitions_of(reference.first_row, reference.rows)
    if expected != (reference.first_row, reference.rows) or found != (reference.partition_min, reference.partition_max):
        raise _rejected(
            reference,
            "rows",
            f"the file has partitions {reference.partition_min} to {reference.partition_max} in {expected[1]} rows "
            f"from row {expected[0]} on, the reference names {reference.rows} from row {reference.first_row} on",
        )
    # A quota counts them, so they are not the producer's to choose.
    share = max(1, size * reference.rows // footer.rows)
    if not share <= reference.bytes <= size:
        raise _rejected(
            reference, "bytes", f"the reference names {reference.bytes} bytes, its rows take {share} of {size}"
        )


def check_age(upload: str, age: Micros, max_age: Micros) -> None:
    """Garbage collection deletes old uploads that no chunk refers to, so older ones are not published any more."""
    if age > max_age:
        raise _rejected_field(
            upload,
            "age",
            f"it was uploaded {age / HOUR:.1f} hours ago, at most {max_age / HOUR:.1f} are allowed: upload it again",
        )


def _check_footer(reference: Reference, upload: ParsedUpload) -> None:
    """Whether the counts of rows per partition agree with each other, and with the row groups."""
    footer = upload.footer
    if any(a[0] >= b[0] for a, b in pairwise(footer.partitions)) or any(rows <= 0 for _, rows in footer.partitions):
        raise _rejected(reference, "footer", "its partitions are not in order, or one has no rows")
    counts = footer.rows, sum(rows for _, rows in footer.partitions), sum(group[0] for group in upload.row_groups)
    if len(set(counts)) > 1:
        raise _rejected(
            reference, "footer", f"it says {counts[0]} rows, {counts[1]} in partitions, {counts[2]} in row groups"
        )
    if _row_groups(footer, upload) != [(low, high) for _, low, high in upload.row_groups]:
        raise _rejected(
            reference, "footer", "its rows per partition differ from the statistics of the column 'partition'"
        )


def _row_groups(footer: UploadFooter, upload: ParsedUpload) -> list[tuple[int, int] | None]:
    """The lowest and the highest partition of each row group, as the counts of rows say."""
    found, at = [], 0
    for rows, *_ in upload.row_groups:
        found.append(footer.partitions_of(at, rows))
        at += rows
    return found


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def rejected_upload(upload: str, problem: str) -> ReferenceRejected:
    """The object of that name is missing, is another one, or is no upload."""
    return _rejected_field(upload, "upload", problem)


def _rejected_field(upload: str, field: str, problem: str) -> ReferenceRejected:
    return ReferenceRejected(f"the upload {upload!r} is not published: {problem}", upload=upload, field=field)


def _rejected(reference: Reference, field: str, problem: str) -> ReferenceRejected:
    return _rejected_field(reference.upload, field, problem)
