"""A topic with sealed segments in a store, created without brokers, and its invariants under garbage collection."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from smq_core.invariants import Violation, nothing_is_left_over, nothing_referenced_is_missing
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import Durability, Layout, Phase, Reason, Replica, SealedSegment, Segment, Topic, TopicSpec
from smq_core.model.keyspace import KeyRange
from smq_operator.cleanup.unreferenced_uploads import HostedSegment, WrittenUploads
from smq_storage.catalog import layouts, paths, sealed_index
from smq_storage.catalog.topics import put_current, put_topic, read_current, read_topic
from smq_storage.chunks.chain import ChunkChain
from smq_storage.chunks.parquet_codec import chunk_schema, message_schema
from smq_storage.object_store.store import Store
from support.data.clocks import NOW

RANGE = KeyRange(0, 16)
CHUNKS, ROWS = 3, 5
END = CHUNKS * ROWS
HOLDER = Replica("b", "incarnation-b", "127.0.0.1:1")


def segment_name(number: int) -> str:
    return f"t-0-16-{number}"


def make_topic(store: Store, count: int, uid: str = "uid-1", name: str = "default/t", **spec: Any) -> Topic:
    """A topic whose segments 0 .. count - 1 are a chain, sealed at 1, 2, 3, ... seconds. The next one is open."""
    topic = Topic(name, uid, TopicSpec(partitions=16, **spec))
    sizes = [write_segment(store, topic, segment_name(number)) for number in range(count)]
    put_chain(store, topic, [sealed_entry(number, END, bytes=size) for number, size in enumerate(sizes)])
    return topic


def put_chain(store: Store, topic: Topic, sealed: Sequence[SealedSegment]) -> None:
    """The topic's documents, its index with these entries, and a layout with the open segment after them."""
    known = read_current(store, topic.name)
    put_current(store, topic.name, topic.uid, known[1] if known else None)
    put_topic(store, topic)
    count = len(sealed)
    sealed_index.append(store, topic.name, topic.uid, sealed)
    before = (segment_name(count - 1),) if count else ()
    it = Segment(
        name=segment_name(count),
        number=count,
        range=RANGE,
        phase=Phase.OPEN,
        durability=Durability.STORED,
        replicas=(HOLDER,),
        predecessors=before,
    )
    layouts.put_layout(
        store,
        Layout(
            topic=topic.name, uid=topic.uid, partitions=16, version=1, next_number=count + 1, segments=(it,), writer="w"
        ),
        None,
    )


def read_stored_topic(store: Store, name: str) -> Topic:
    """The living topic ``namespace/topic`` as the leader wrote it."""
    current = read_current(store, name)
    assert current is not None
    found = read_topic(store, name, current[0])
    assert found is not None
    return found


def sealed_entry(number: int, end: int, **more: Any) -> SealedSegment:
    """The segment of a chain with this number, sealed at ``number + 1`` seconds."""
    return SealedSegment(
        name=segment_name(number),
        number=number,
        range=RANGE,
        end=end,
        predecessors=(segment_name(number - 1),) if number else (),
        successors=(segment_name(number + 1),),
        opened_because=Reason.ROLL,
        sealed_because=Reason.ROLL,
        opened_at=number * 1_000_000,
        sealed_at=(number + 1) * 1_000_000,
        **more,
    )


def write_segment(store: Store, topic: Topic, segment: str) -> int:
    """A sealed segment of three chunks. Returns its bytes."""
    chain = ChunkChain(store, topic.name, topic.uid, segment)
    schema, batch = chunk_schema(()), pa.RecordBatch.from_pylist(_rows(), schema=message_schema(()))
    for first in range(0, END, ROWS):
        chain.put(
            ChunkInfo(segment=segment, first=first, rows=ROWS, writer="w", nonce=f"n{first}"), [(batch, 1)], schema
        )
    chain.put_seal(ChunkInfo(segment=segment, first=END, rows=0, writer="w", nonce="seal", sealed=True))
    return sum(file.size for file in chain.files())


def _rows() -> list[dict[str, object]]:
    return [{"partition": i, "timestamp": 0, "key": b"k", "value": b"v" * 100, "headers": []} for i in range(ROWS)]


def segments_with_files(store: Store, topic: Topic) -> dict[str, int]:
    """How many files each segment's folder has."""
    found: dict[str, int] = {}
    folder = paths.topic_folder(topic.name, topic.uid)
    for listed in store.list(folder):
        segment = listed.path.removeprefix(f"{folder}/").split("/")[0]
        if paths.first_offset(listed.path) is not None:
            found[segment] = found.get(segment, 0) + 1
    return found


def referenced(store: Store, topic: Topic) -> dict[str, int | None]:
    """The segments that the index and the layout name, with their ends if known."""
    ends: dict[str, int | None] = {entry.name: entry.end for entry in sealed_index.read(store, topic.name, topic.uid)}
    layout = layouts.read_layout(store, topic.name, topic.uid)
    return ends | {segment.name: None for segment in (layout[0].segments if layout else ())}


def missing_files(store: Store, topic: Topic) -> Sequence[Violation]:
    """Referenced files that were collected."""
    ends = referenced(store, topic)
    chains = {name: list(ChunkChain(store, topic.name, topic.uid, name).walk()) for name in ends}
    return nothing_referenced_is_missing(ends, chains)


def leftover_files(store: Store, topic: Topic) -> Sequence[Violation]:
    """Orphaned files that are still there."""
    return nothing_is_left_over(referenced(store, topic), segments_with_files(store, topic))


def all_written(store: Store, topic: Topic, before: datetime = NOW) -> dict[HostedSegment, WrittenUploads]:
    """What the primaries of the layout report: no unwritten message names an upload that is older than ``before``."""
    found = layouts.read_layout(store, topic.name, topic.uid)
    segments = found[0].segments if found is not None else ()
    return {(it.primary.incarnation, it.name): WrittenUploads(0, before) for it in segments}
