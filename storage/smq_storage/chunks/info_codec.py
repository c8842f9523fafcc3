"""The JSON of a chunk's metadata.

A producer's state is an array, ``[epoch, last sequence, instance, appended, recent]``. ``recent`` has the first of the
first offsets, then the differences, because a chunk may name thousands of producers with 64 batches each.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from itertools import accumulate, pairwise

from smq_core.model.chunk_info import ChunkInfo, Producers, ProducerState
from smq_core.model.compacted_rows import CompactedRows
from smq_core.model.loss import Loss
from smq_core.model.reference import Reference
from smq_storage.object_store.json_codec import from_json, to_json

_StoredState = tuple[int, int, str, int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _StoredInfo:
    """ChunkInfo with the states of producers as arrays."""

    segment: str
    first: int
    rows: int
    writer: str
    nonce: str
    sealed: bool = False
    producers: dict[str, _StoredState] = field(default_factory=dict)
    lost: Loss | None = None
    upload: str | None = None
    snapshot_at: int | None = None
    forgotten: tuple[str, ...] = ()
    forgotten_upto: int = 0
    uninherited: tuple[str, ...] = ()
    schema_version: int = 0
    reference: Reference | None = None
    appended: int | None = None
    large_values: tuple[str, ...] = ()
    compacted: CompactedRows | None = None


_COPIED = [f.name for f in fields(_StoredInfo) if f.name != "producers"]


def encode_info(info: ChunkInfo) -> bytes:
    copied = {name: getattr(info, name) for name in _COPIED}
    producers = {name: _pack(state) for name, state in info.producers.items()}
    return to_json(_StoredInfo(**copied, producers=producers))


def decode_info_json(text: bytes) -> ChunkInfo:
    """Raises ValueError if the JSON is damaged or lacks a field."""
    stored = from_json(_StoredInfo, text)
    copied = {name: getattr(stored, name) for name in _COPIED}
    producers: Producers = {name: _unpack(state) for name, state in stored.producers.items()}
    return ChunkInfo(**copied, producers=producers)


def _pack(state: ProducerState) -> _StoredState:
    steps = (*state.recent[:1], *(b - a for a, b in pairwise(state.recent)))
    return state.epoch, state.last_sequence, state.instance, state.appended, steps


def _unpack(stored: _StoredState) -> ProducerState:
    epoch, last_sequence, instance, appended, steps = stored
    return ProducerState(
        epoch=epoch, last_sequence=last_sequence, recent=tuple(accumulate(steps)), instance=instance, appended=appended
    )
