"""A topic with sealed segments in a store, made without brokers, and what must be true of it whatever is collected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from smq_core.invariants import Violation, nothing_is_left_over, nothing_referenced_is_missing
from smq_core.keyspace import KeyRange
from smq_core.model import (
    ChunkInfo,
    Durability,
    Layout,
    Phase,
    Reason,
    Replica,
    SealedSegment,
    Segment,
    Topic,
    TopicSpec,
)
from smq_storage import index, layouts, paths
from smq_storage.chain import Chain
from smq_storage.chunks import chunk_schema, message_schema
from smq_storage.store import Store
from smq_storage.topics import put_current, put_topic, read_current

RANGE = KeyRange(0, 16)
CHUNKS, ROWS = 3, 5
END = CHUNKS * ROWS
HOLDER = Replica("b", "incarnation-b", "127.0.0.1:1")


def name_of(number: int) -> str:
    return f"t-0-16-{number}"


def make_topic(store: Store, count: int, uid: str = "uid-1", name: str = "default/t", **spec: Any) -> Topic:
    """A topic whose segments 0 .. count - 1 are a chain, sealed at 1, 2, 3, ... seconds; the next one is open."""
    topic = Topic(name, uid, TopicSpec(partitions=16, **spec))
    known = read_current(store, name)
    put_current(store, name, uid, known[1] if known else None)
    put_topic(store, topic)
    sealed = []
    for number in range(count):
        size = write_segment(store, topic, name_of(number))
        sealed.append(_entry(number, size))
    index.append(store, name, uid, sealed)
    before = (name_of(count - 1),) if count else ()
    it = Segment(name_of(count), count, RANGE, Phase.OPEN, Durability.STORED, (HOLDER,), before)
    layouts.put_layout(store, Layout(name, uid, 16, 1, count + 1, (it,), writer="w"), None)
    return topic


def _entry(number: int, size: int) -> SealedSegment:
    return SealedSegment(
        name_of(number),
        number,
        RANGE,
        END,
        (name_of(number - 1),) if number else (),
        (name_of(number + 1),),
        Reason.ROLL,
        Reason.ROLL,
        number * 1_000_000,
        (number + 1) * 1_000_000,
        bytes=size,
    )


def write_segment(store: Store, topic: Topic, segment: str) -> int:
    """A sealed segment of three chunks. Returns its bytes."""
    chain = Chain(store, topic.name, topic.uid, segment)
    schema, batch = chunk_schema(()), pa.RecordBatch.from_pylist(_rows(), schema=message_schema(()))
    for first in range(0, END, ROWS):
        chain.put(ChunkInfo(segment, first, ROWS, "w", f"n{first}"), [(batch, 1)], schema)
    chain.put_seal(ChunkInfo(segment, END, 0, "w", "seal", sealed=True))
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
    """The segments that the index and the layout name, with the ends that are known."""
    ends: dict[str, int | None] = {entry.name: entry.end for entry in index.read(store, topic.name, topic.uid)}
    layout = layouts.read_layout(store, topic.name, topic.uid)
    return ends | {segment.name: None for segment in (layout[0].segments if layout else ())}


def missing(store: Store, topic: Topic) -> Sequence[Violation]:
    """What is referenced and was collected all the same."""
    ends = referenced(store, topic)
    chains = {name: list(Chain(store, topic.name, topic.uid, name).walk()) for name in ends}
    return nothing_referenced_is_missing(ends, chains)


def left_over(store: Store, topic: Topic) -> Sequence[Violation]:
    """What nothing refers to and is there all the same."""
    return nothing_is_left_over(referenced(store, topic), segments_with_files(store, topic))
