"""A topic as the leader or the filer knows it now: its identity, its newest schema, and where its files are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from smq_core.model.schema_evolution import newest_schema
from smq_storage.chunks.schemas import chunk_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_smq.options import Connection
    from smq_storage.object_store.store import StoreSettings


@dataclass(frozen=True, slots=True)
class TopicNow:
    """``chunk_schema`` has the columns of the newest schema, whose number is ``version``.

    ``key`` names the key column, None if there is none.
    """

    name: str
    uid: str
    chunk_schema: pa.Schema
    version: int
    key: str | None
    store: StoreSettings


def open_topic(connection: Connection) -> TopicNow:
    """Raises InvalidRequest, UnknownTopic, Unavailable, StoreDenied."""
    with connection.connect() as client:
        view = client._view(connection.topic)
        snapshot = view.snapshot
        spec = snapshot.topic.spec
        newest = newest_schema(snapshot.layout, spec.schema)
        store = view.store_settings
    key = spec.key if newest.columns else "key"
    return TopicNow(snapshot.topic.name, snapshot.topic.uid, chunk_schema(newest.columns), newest.version, key, store)


def newest_chunk_schema(connection: Connection) -> pa.Schema:
    """The columns that a message of the topic's newest schema has in a chunk. Raises as ``open_topic``."""
    return open_topic(connection).chunk_schema
