"""Followers and journals know what a primary knows of Kafka's producers."""

from __future__ import annotations

import pytest

from smq_broker.rows.payloads import Payload
from smq_broker.rows.replication_messages import decode_entries, encode_message
from smq_broker.rows.small_batches import SmallBatch
from smq_core.errors import InvalidRequest
from smq_core.model.kafka_producers import (
    NO_PRODUCER_ID,
    SEQUENCES,
    KafkaBatchId,
    KafkaProducerKey,
    KafkaProducerState,
    batches_from,
)
from smq_core.replica.log_entries import BatchId, Entry, IncomingBatch, ReplicationMessage
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import kafka_producers_from_pb

ROWS = SmallBatch([0, 0, 0], [3, 3, 3], [], [b"a", b"b", b"c"])
INHERITED = {
    KafkaProducerKey(1 << 62, 3): KafkaProducerState(
        epoch=7, batches=batches_from(SEQUENCES - 1, [(2, 40), (1, 50)]), appended=9
    ),
    KafkaProducerKey(5, 0): KafkaProducerState(epoch=0, batches=batches_from(0, [(1, 0)]), appended=8),
}


def entry(first: int, id_: BatchId | KafkaBatchId, **fields: object) -> Entry:
    batch = IncomingBatch(
        id=id_,
        rows=1,
        nbytes=1,
        partition_min=3,
        partition_max=3,
        payload=Payload(ROWS, first),
        partition_rows=((3, 1),),
    )
    return Entry(first=first, batch=batch, appended=first, **fields)  # type: ignore[arg-type]


def test_the_ids_of_batches_and_what_was_inherited_are_replicated() -> None:
    ids = [KafkaBatchId(1 << 62, 32767, SEQUENCES - 1), KafkaBatchId(NO_PRODUCER_ID, -1, -1), BatchId("a", 1, 2, "i")]
    entries = (entry(0, ids[0], inherited_kafka_producers=INHERITED), entry(1, ids[1]), entry(2, ids[2]))
    message = ReplicationMessage(base_offset=0, entries=entries, watermark=0, chain_end=0)
    header, _ = encode_message(message, ROWS.to_arrow())
    decoded = decode_entries(pb.ReplicationBatch.FromString(header), ROWS)
    assert [it.batch.id for it in decoded] == ids
    assert list((decoded[0].inherited_kafka_producers or {}).items()) == list(INHERITED.items())
    assert decoded[1].inherited_kafka_producers is None


@pytest.mark.parametrize(("records", "offsets"), [([], []), ([1, 2], [0])])
def test_damaged_kafka_producers_are_refused(records: list[int], offsets: list[int]) -> None:
    with pytest.raises(InvalidRequest, match="damaged"):
        kafka_producers_from_pb([pb.KafkaProducer(producer_id=1, records=records, offsets=offsets)])
