"""What a commit does on the driver: it publishes all rows of all tasks as one version of an app, or none of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa

from pyspark_smq.options import Connection
from pyspark_smq.planning.shared_stores import shared_store
from pyspark_smq.sink.staging import StagedRows, chunk_schema_of, to_topic_columns
from smq import AtomicReceipt, StagedFile
from smq_core.errors import InvalidRequest, SmqError
from smq_core.model.atomic_publish import MAX_FILES
from smq_storage.catalog import paths

log = logging.getLogger(__name__)


def publish_rows(
    messages: Sequence[StagedRows],
    connection: Connection,
    app: str,
    version: int,
    timeout: float,
    *,
    owner: str | None = None,
    one_off: bool = False,
) -> AtomicReceipt:
    """Publishes what the tasks have staged. Few rows of many tasks become one upload.

    Raises ProducerFenced if another owner publishes for the app, SchemaMismatch, InvalidRequest for too many uploads,
    UnknownTopic, Unavailable, DeliveryTimeout.
    """
    uploads = [file for message in messages for file in message.uploads]
    if len(uploads) >= MAX_FILES:
        raise InvalidRequest(
            f"the tasks have uploaded {len(uploads)} files, and one commit publishes less than {MAX_FILES}: write with "
            "fewer and larger tasks (df.coalesce), or in several micro-batches (maxBytesPerTrigger)"
        )
    tables = [table for message in messages if (table := message.table) is not None]
    table = to_topic_columns(pa.concat_tables(tables), chunk_schema_of(connection)) if tables else None
    with connection.connect() as client:
        return client.publish_atomically(
            connection.topic,
            app=app,
            version=version,
            table=table,
            staged=uploads,
            timeout=timeout,
            owner=owner,
            one_off=one_off,
        )


def delete_uploads(messages: Sequence[StagedRows], connection: Connection) -> None:
    """Deletes what the tasks of a failed write have uploaded, as far as it can: the leader deletes the rest later."""
    uploads = [file for message in messages for file in message.uploads]
    if uploads:
        with suppress(SmqError):
            _delete(uploads, connection)


def _delete(uploads: Sequence[StagedFile], connection: Connection) -> None:
    from smq.reading import open_topic

    location = open_topic(connection.topic, **connection.arguments()).location
    store = shared_store(location)
    for file in uploads:
        store.delete(paths.uploaded_file(location.uid, file.name))
    log.info("deleted %d uploads of a write that was aborted", len(uploads))
