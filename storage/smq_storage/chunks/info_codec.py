"""The JSON of a chunk's metadata.

A producer's state is an array, ``[epoch, last sequence, instance, appended, recent]``. ``recent`` has the first of the
first offsets, then the differences, because a chunk may name thousands of producers with 64 batches each.

Kafka producers are a list in the order of their last batches. A state is an array, ``[producer id, partition, epoch,
appended, first sequence, records, offset, records, offset, …]``. The sequences of the batches follow each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate, chain, pairwise

from smq_core.model.chunk_info import ChunkInfo, Producers, ProducerState
from smq_core.model.common_fields import fields_of
from smq_core.model.kafka_producers import KafkaProducerKey, KafkaProducers, KafkaProducerState, batches_from
from smq_storage.object_store.json_codec import from_json, to_json

_StoredState = tuple[int, int, str, int, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredInfo(ChunkInfo):
    """ChunkInfo with the states of producers as arrays."""

    producers: dict[str, _StoredState] = field(default_factory=dict)  # type: ignore[assignment]
    kafka_producers: list[tuple[int, ...]] = field(default_factory=list)  # type: ignore[assignment]


def encode_info(info: ChunkInfo) -> bytes:
    producers = {name: _pack(state) for name, state in info.producers.items()}
    kafka_producers = [_pack_kafka(key, state) for key, state in info.kafka_producers.items()]
    return to_json(
        _StoredInfo(**fields_of(ChunkInfo, info) | {"producers": producers, "kafka_producers": kafka_producers})
    )


def decode_info_json(text: bytes) -> ChunkInfo:
    """Raises ValueError if the JSON is damaged or lacks a field."""
    stored = from_json(_StoredInfo, text)
    producers: Producers = {name: _unpack(state) for name, state in stored.producers.items()}
    kafka_producers: KafkaProducers = dict(_unpack_kafka(numbers) for numbers in stored.kafka_producers)
    return ChunkInfo(**fields_of(ChunkInfo, stored) | {"producers": producers, "kafka_producers": kafka_producers})


def _pack(state: ProducerState) -> _StoredState:
    steps = (*state.recent[:1], *(b - a for a, b in pairwise(state.recent)))
    return state.epoch, state.last_sequence, state.instance, state.appended, steps


def _unpack(stored: _StoredState) -> ProducerState:
    epoch, last_sequence, instance, appended, steps = stored
    return ProducerState(
        epoch=epoch, last_sequence=last_sequence, recent=tuple(accumulate(steps)), instance=instance, appended=appended
    )


def _pack_kafka(key: KafkaProducerKey, state: KafkaProducerState) -> tuple[int, ...]:
    batches = ((batch.records, batch.offset) for batch in state.batches)
    return (*key, state.epoch, state.appended, state.batches[0].first_sequence, *chain.from_iterable(batches))


def _unpack_kafka(numbers: tuple[int, ...]) -> tuple[KafkaProducerKey, KafkaProducerState]:
    """Raises ValueError if there is no batch, or half of one."""
    producer_id, partition, epoch, appended, sequence, *rest = numbers
    if not rest or len(rest) % 2:
        raise ValueError(f"a Kafka producer has batches of two numbers each, not {rest}")
    batches = batches_from(sequence, zip(rest[::2], rest[1::2], strict=True))
    return KafkaProducerKey(producer_id, partition), KafkaProducerState(epoch=epoch, batches=batches, appended=appended)
