"""What the leader reads of a publish's uploads: checks before the commit, and the partitions after it."""

from __future__ import annotations

from smq_core.errors import CorruptChunk, InvalidRequest
from smq_core.model.atomic_publish import AtomicFile
from smq_core.model.entities import SECOND, Micros, Topic, TopicSchema
from smq_core.model.keyspace import KeyRange
from smq_core.model.reference import Reference
from smq_core.producing.roll_forward import FilePartitions, RowRange
from smq_storage.catalog import paths
from smq_storage.chunks.schemas import message_schema
from smq_storage.object_store.store import ObjectMissing, Store
from smq_storage.uploads.reference_rules import check_age, check_reference, check_upload, rejected_upload
from smq_storage.uploads.uploaded_files import StoredUpload, read_upload_footer


def check_file(
    store: Store, topic: Topic, file: AtomicFile, schema: TopicSchema, filer_now: Micros, max_age: Micros
) -> None:
    """Whether brokers will accept references to all rows of the file. Raises ReferenceRejected, StoreUnavailable."""
    unknown = reference_of(file, RowRange(file=0, first_row=0, rows=file.rows, partition_min=0, partition_max=0))
    upload = _read(store, topic, file, unknown)
    if upload.size != file.bytes:
        raise rejected_upload(unknown.upload, f"the file has {upload.size} bytes, expected {file.bytes}")
    partitions = upload.parsed.footer.partitions
    lowest, highest = (partitions[0][0], partitions[-1][0]) if partitions else (0, 0)
    reference = reference_of(
        file, RowRange(file=0, first_row=0, rows=file.rows, partition_min=lowest, partition_max=highest)
    )
    check_reference(reference, topic.name, KeyRange(0, topic.spec.partitions), schema.version)
    check_upload(reference, upload.parsed, upload.size, topic.uid, message_schema(schema.columns))
    check_age(file.upload, filer_now - round(upload.modified.timestamp() * SECOND), max_age)


def read_partitions(store: Store, topic: Topic, file: AtomicFile) -> FilePartitions:
    """The partitions of a file of a committed publish. Raises ReferenceRejected if it is gone or was altered."""
    upload = _read(
        store,
        topic,
        file,
        reference_of(file, RowRange(file=0, first_row=0, rows=file.rows, partition_min=0, partition_max=0)),
    )
    return upload.parsed.footer.partitions


def reference_of(file: AtomicFile, rows: RowRange) -> Reference:
    """The reference that a segment gets for these rows."""
    return Reference(
        upload=file.upload,
        etag=file.etag,
        first_row=rows.first_row,
        rows=rows.rows,
        bytes=max(1, file.bytes * rows.rows // max(file.rows, 1)),
        partition_min=rows.partition_min,
        partition_max=rows.partition_max,
        timestamp_min=file.timestamp_min,
        timestamp_max=file.timestamp_max,
        schema_version=file.schema_version,
    )


def _read(store: Store, topic: Topic, file: AtomicFile, reference: Reference) -> StoredUpload:
    try:
        upload = read_upload_footer(store, paths.uploaded_file(topic.uid, file.upload))
    except (InvalidRequest, CorruptChunk) as error:
        raise rejected_upload(reference.upload, error.message) from None
    except ObjectMissing:
        raise rejected_upload(reference.upload, "there is no such file") from None
    if upload.etag != file.etag:
        raise rejected_upload(reference.upload, f"the file has the etag {upload.etag}, expected {file.etag}")
    return upload
