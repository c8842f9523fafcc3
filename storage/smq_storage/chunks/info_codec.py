"""The JSON of a chunk's metadata.

A producer's state is an array, ``[epoch, last sequence, instance, appended, recent]``. ``recent`` has the first of the
first offsets, then the differences, because a chunk may name thousands of producers with 64 batches each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from smq_core.model.chunk_info import ChunkInfo, Producers, ProducerState
from smq_core.model.common_fields import fields_of
from smq_storage.object_store.json_codec import from_json, to_json

_StoredState = tuple[int, int, str, int, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredInfo(ChunkInfo):
    """ChunkInfo with the states of producers as arrays."""

    producers: dict[str, _StoredState] = field(default_factory=dict)  # type: ignore[assignment]


def encode_info(info: ChunkInfo) -> bytes:
    producers = {name: _pack(state) for name, state in info.producers.items()}
    return to_json(_StoredInfo(**fields_of(ChunkInfo, info) | {"producers": producers}))


def decode_info_json(text: bytes) -> ChunkInfo:
    """Raises ValueError if the JSON is damaged or lacks a field."""
    stored = from_json(_StoredInfo, text)
    producers: Producers = {name: _unpack(state) for name, state in stored.producers.items()}
    return ChunkInfo(**fields_of(ChunkInfo, stored) | {"producers": producers})


def _pack(state: ProducerState) -> _StoredState:
    steps = (*state.recent[:1], *(b - a for a, b in pairwise(state.recent)))
    return state.epoch, state.last_sequence, state.instance, state.appended, steps


def _unpack(stored: _StoredState) -> ProducerState:
    epoch, last_sequence, instance, appended, steps = stored
    return ProducerState(
        epoch=epoch, last_sequence=last_sequence, recent=tuple(accumulate(steps)), instance=instance, appended=appended
    )
