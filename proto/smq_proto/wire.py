"""Converts the model to protobuf and back, for brokers, leader and clients alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from smq_core.errors import InvalidRequest
from smq_core.model.chunk_info import Producers, ProducerState, SealOutcome
from smq_core.model.common_fields import fields_of
from smq_core.model.entities import (
    Column,
    Durability,
    Layout,
    Phase,
    Reason,
    RemovedSegment,
    Replica,
    SealedSegment,
    Segment,
    SegmentEntry,
    Topic,
    TopicSchema,
    TopicSpec,
)
from smq_core.model.interval_set import IntervalSet
from smq_core.model.kafka_producers import KafkaProducerKey, KafkaProducers, KafkaProducerState, batches_from
from smq_core.model.keyspace import KeyRange, Partitioner
from smq_core.model.loss import Loss
from smq_core.model.partition_offsets import PartitionOffsets, PartitionRows
from smq_core.model.reference import Reference
from smq_proto.enums import DURABILITY, PARTITIONER, PHASE, REASON
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1 import topics_pb2

# Versions that differ by one work together. Raise it by two when the format of a root changes: then the processes of
# both formats refuse each other.
PROTOCOL = 1

# For more messages Arrow's fixed cost is lower than what each message of a small batch costs.
MAX_SMALL_BATCH_ROWS = 256


def check_protocol(version: int) -> None:
    """Raises InvalidRequest if this side does not support the other side's protocol version."""
    if version < 1 or abs(version - PROTOCOL) > 1:
        raise InvalidRequest(
            f"protocol version {version} is not supported here, where it is {PROTOCOL}: upgrade the older side"
        )


def segment_to_pb(segment: Segment) -> pb.Segment:
    message = _entry_to_pb(segment, segment.phase, segment.sealed_because)
    message.replicas.extend(
        pb.Replica(broker=r.broker, incarnation=r.incarnation, address=r.address) for r in segment.replicas
    )
    return message


def segment_from_pb(message: pb.Segment) -> Segment:
    """Raises InvalidRequest if it is not a segment."""
    try:
        return Segment(
            **_entry_from_pb(message),
            phase=Phase(PHASE.word(message.phase)),
            replicas=tuple(Replica(r.broker, r.incarnation, r.address) for r in message.replicas),
            sealed_because=_reason(message.sealed_because) if message.sealed_because else None,
        )
    except ValueError as error:
        raise InvalidRequest(f"not a segment: {error}") from error


def sealed_to_pb(segment: SealedSegment) -> pb.Segment:
    message = _entry_to_pb(segment, Phase.SEALED, segment.sealed_because)
    message.end, message.sealed_at, message.bytes = segment.end, segment.sealed_at, segment.bytes
    message.file_list = segment.file_list
    if segment.lost is not None:
        message.lost.CopyFrom(loss_to_pb(segment.lost))
    return message


def sealed_from_pb(message: pb.Segment) -> SealedSegment:
    return SealedSegment(
        **_entry_from_pb(message),
        end=message.end,
        sealed_because=_reason(message.sealed_because),
        sealed_at=message.sealed_at,
        bytes=message.bytes,
        lost=loss_from_pb(message.lost) if message.HasField("lost") else None,
        file_list=message.file_list,
    )


def _entry_to_pb(segment: SegmentEntry, phase: Phase, sealed_because: Reason | None) -> pb.Segment:
    return pb.Segment(
        name=segment.name,
        number=segment.number,
        start=segment.range.start,
        stop=segment.range.stop,
        phase=PHASE.value(phase),
        durability=DURABILITY.value(segment.durability),
        predecessors=segment.predecessors,
        successors=segment.successors,
        opened_because=REASON.value(segment.opened_because),
        sealed_because=REASON.value(sealed_because) if sealed_because else None,
        opened_at=segment.opened_at,
        schema_version=segment.schema_version,
    )


def _entry_from_pb(message: pb.Segment) -> dict[str, Any]:
    """The fields of SegmentEntry."""
    return {
        "name": message.name,
        "number": message.number,
        "range": KeyRange(message.start, message.stop),
        "predecessors": tuple(message.predecessors),
        "successors": tuple(message.successors),
        "opened_because": _reason(message.opened_because),
        "opened_at": message.opened_at,
        "durability": Durability(DURABILITY.word(message.durability)),
        "schema_version": message.schema_version,
    }


def _reason(value: int) -> Reason:
    """The reason; that of a later release counts as a roll, because reasons are shown and decide nothing."""
    return Reason(REASON.word(value)) if value in pb.Reason.values() else Reason.ROLL


def removed_to_pb(numbers: IntervalSet, segments: Iterable[RemovedSegment]) -> topics_pb2.HistoryReply.Removed:
    return topics_pb2.HistoryReply.Removed(
        numbers=[topics_pb2.HistoryReply.Range(start=start, stop=stop) for start, stop in numbers],
        segments=[pb.Segment(name=s.name, number=s.number, end=s.end) for s in segments],
    )


def removed_from_pb(message: topics_pb2.HistoryReply.Removed) -> tuple[IntervalSet, dict[str, int]]:
    """The numbers of removed segments, and the ends of the last ones by name."""
    return tuple((r.start, r.stop) for r in message.numbers), {s.name: s.end for s in message.segments}


def layout_to_pb(layout: Layout) -> pb.Layout:
    return pb.Layout(
        topic=layout.topic,
        uid=layout.uid,
        partitions=layout.partitions,
        version=layout.version,
        segments=[segment_to_pb(s) for s in layout.segments],
        schemas=[schema_to_pb(s) for s in layout.schemas],
    )


def layout_from_pb(message: pb.Layout) -> Layout:
    """``next_number`` is the same, because the newest segment leaves the layout only when it has successors there."""
    return Layout(
        topic=message.topic,
        uid=message.uid,
        partitions=message.partitions,
        version=message.version,
        next_number=1 + max((s.number for s in message.segments), default=-1),
        segments=tuple(segment_from_pb(s) for s in message.segments),
        schemas=tuple(schema_from_pb(s) for s in message.schemas),
    )


def schema_to_pb(schema: TopicSchema) -> pb.TopicSchema:
    return pb.TopicSchema(version=schema.version, columns=columns_to_pb(schema.columns), dropped=schema.dropped)


def schema_from_pb(message: pb.TopicSchema) -> TopicSchema:
    return TopicSchema(message.version, columns_from_pb(message.columns), tuple(message.dropped))


def columns_to_pb(columns: Iterable[Column]) -> list[pb.Column]:
    return [pb.Column(name=c.name, type=c.type, nullable=c.nullable) for c in columns]


def columns_from_pb(columns: Iterable[pb.Column]) -> tuple[Column, ...]:
    return tuple(Column(c.name, c.type, c.nullable) for c in columns)


def topic_to_pb(topic: Topic, schema: TopicSchema | None = None) -> pb.TopicInfo:
    """The topic with this version of its schema; None stands for version 0 with the columns of the topic's spec."""
    spec = topic.spec
    return pb.TopicInfo(
        name=topic.name,
        uid=topic.uid,
        partitions=spec.partitions,
        key=spec.key or "",
        schema=columns_to_pb(spec.schema if schema is None else schema.columns),
        schema_version=0 if schema is None else schema.version,
        durability=DURABILITY.value(spec.durability),
        flush_bytes=spec.flush_bytes,
        flush_interval=spec.flush_interval,
        flush_max_interval=spec.flush_max_interval or 0,
        partitioner=PARTITIONER.value(spec.partitioner),
        kafka_name=spec.kafka_name or "",
    )


def topic_from_pb(message: pb.TopicInfo) -> Topic:
    """The topic as far as brokers and clients need it; fields that the message lacks have their defaults.

    ``spec.schema`` has the columns of the message's ``schema_version``.
    """
    return Topic(
        message.name,
        message.uid,
        TopicSpec(
            partitions=message.partitions,
            partitioner=Partitioner(PARTITIONER.word(message.partitioner)),
            key=message.key or None,
            schema=columns_from_pb(message.schema),
            durability=Durability(DURABILITY.word(message.durability)),
            flush_bytes=message.flush_bytes,
            flush_interval=message.flush_interval,
            flush_max_interval=message.flush_max_interval or None,
            kafka_name=message.kafka_name or None,
        ),
    )


def outcome_to_pb(
    outcome: SealOutcome, *, only: str | None = None, successors: Iterable[Segment] = ()
) -> pb.SealOutcome:
    """``only`` limits the states of producers to this one."""
    producers: Producers = outcome.producers
    if only is not None:
        producers = {only: producers[only]} if only in producers else {}
    return pb.SealOutcome(
        segment=outcome.segment,
        end=outcome.end,
        producers={name: producer_to_pb(state) for name, state in producers.items()},
        forgotten_upto=outcome.forgotten_upto,
        uninherited=outcome.uninherited,
        lost=loss_to_pb(outcome.lost),
        successors=[segment_to_pb(s) for s in successors],
        partitions=partition_offsets_to_pb(outcome.partitions),
    )


def outcome_from_pb(message: pb.SealOutcome) -> SealOutcome:
    return SealOutcome(
        segment=message.segment,
        end=message.end,
        producers={name: producer_from_pb(state) for name, state in message.producers.items()},
        forgotten_upto=message.forgotten_upto,
        uninherited=tuple(message.uninherited),
        lost=loss_from_pb(message.lost) if message.HasField("lost") else None,
        partitions=partition_offsets_from_pb(message.partitions) if message.HasField("partitions") else None,
    )


def partition_rows_to_pb(rows: PartitionRows) -> pb.PartitionRows | None:
    """None if there are none."""
    if not rows:
        return None
    return pb.PartitionRows(partitions=[partition for partition, _ in rows], rows=[count for _, count in rows])


def partition_rows_from_pb(message: pb.PartitionRows) -> PartitionRows:
    """Raises InvalidRequest if the two lists differ in length."""
    if len(message.partitions) != len(message.rows):
        raise InvalidRequest(
            f"numbers of messages came for {len(message.partitions)} partitions, but there are {len(message.rows)}"
        )
    return tuple(zip(message.partitions, message.rows, strict=True))


def partition_offsets_to_pb(offsets: PartitionOffsets | None) -> pb.PartitionOffsets | None:
    if offsets is None:
        return None
    return pb.PartitionOffsets(first=offsets.first, ends=offsets.ends, jumps=partition_rows_to_pb(offsets.jumps))


def partition_offsets_from_pb(message: pb.PartitionOffsets) -> PartitionOffsets:
    """Raises InvalidRequest if the jumps are damaged."""
    return PartitionOffsets(first=message.first, ends=tuple(message.ends), jumps=partition_rows_from_pb(message.jumps))


def kafka_producers_to_pb(producers: KafkaProducers) -> list[pb.KafkaProducer]:
    return [
        pb.KafkaProducer(
            producer_id=key.producer_id,
            partition=key.partition,
            epoch=state.epoch,
            appended=state.appended,
            first_sequence=state.batches[0].first_sequence,
            records=[batch.records for batch in state.batches],
            offsets=[batch.offset for batch in state.batches],
        )
        for key, state in producers.items()
    ]


def kafka_producers_from_pb(messages: Iterable[pb.KafkaProducer]) -> KafkaProducers:
    """In the order of the messages. Raises InvalidRequest if one has no batches, or an offset is missing."""
    producers: dict[KafkaProducerKey, KafkaProducerState] = {}
    for message in messages:
        if not message.records or len(message.records) != len(message.offsets):
            raise InvalidRequest(f"Kafka producer {message.producer_id} came with damaged batches")
        batches = batches_from(message.first_sequence, zip(message.records, message.offsets, strict=True))
        producers[KafkaProducerKey(message.producer_id, message.partition)] = KafkaProducerState(
            epoch=message.epoch, batches=batches, appended=message.appended
        )
    return producers


def loss_to_pb(lost: Loss | None) -> pb.Loss | None:
    return None if lost is None else pb.Loss(start=lost.start, stop=lost.stop, at_least=lost.at_least)


def loss_from_pb(message: pb.Loss) -> Loss:
    return Loss(message.start, message.stop, message.at_least)


def reference_to_pb(reference: Reference) -> pb.Reference:
    return pb.Reference(**fields_of(Reference, reference))


def reference_from_pb(message: pb.Reference) -> Reference:
    return Reference(**fields_of(Reference, message))


def producer_to_pb(state: ProducerState) -> pb.ProducerState:
    last = state.last_sequence if state.last_sequence >= 0 else None
    return pb.ProducerState(
        epoch=state.epoch, last_sequence=last, recent=state.recent, instance=state.instance, appended=state.appended
    )


def producer_from_pb(message: pb.ProducerState) -> ProducerState:
    last = message.last_sequence if message.HasField("last_sequence") else -1
    return ProducerState(
        epoch=message.epoch,
        last_sequence=last,
        recent=tuple(message.recent),
        instance=message.instance,
        appended=message.appended,
    )
