"""References are published when all of them are durable, and not before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow.flight as fl
import pytest

from smq_core.errors import Unavailable
from smq_core.model.atomic_publish import AppState
from smq_core.model.entities import Replica
from smq_core.model.reference import Reference
from smq_operator.publishing.reference_stream import SESSION, publish_references
from smq_proto.error_conversion import error_to_pb
from smq_proto.v1 import data_pb2 as pb
from smq_storage.chunks.parquet_codec import message_schema
from support.processes.broker import make_segment, make_topic


class Primary(fl.FlightServerBase):  # type: ignore[misc]
    """Answers a stream with ``acks``, each of that number of references, and then with an error."""

    def __init__(self) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.acks: list[int] = []

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        def reply(**kind: Any) -> None:
            frame = pb.ProducerFrameReply()
            frame.sessions.add(session=SESSION, reply=pb.ProducerReply(**kind))
            writer.write(frame.SerializeToString())

        writer.write(pb.ProducerFrameReply().SerializeToString())
        reply(opened=pb.ProducerReply.Opened())
        acked = 0
        for count in self.acks:
            reply(acks=pb.ProducerReply.Acks(first_sequence=acked, first_offsets=range(acked, acked + count)))
            acked += count
        reply(error=error_to_pb(Unavailable("the broker ends")))
        with suppress(StopIteration):  # a stream whose handler returns early loses replies
            while True:
                reader.read_chunk()


@pytest.fixture
def primary() -> Iterator[Primary]:
    server = Primary()
    yield server
    server.shutdown()


def publish(primary: Primary, count: int) -> int | None:
    topic = make_topic()
    segment = make_segment(topic, Replica("b1", "i-b1", f"127.0.0.1:{primary.port}"))
    references = [
        Reference(
            upload=f"upload-{n}",
            etag="etag",
            first_row=0,
            rows=1,
            bytes=1,
            partition_min=0,
            partition_max=0,
            timestamp_min=0,
            timestamp_max=0,
        )
        for n in range(count)
    ]
    return publish_references(
        topic, segment, message_schema(), AppState(app="app", owner="owner", producer="producer"), references
    )


@pytest.mark.parametrize("acks", [[1], [1, 1], [2], []])
def test_references_without_an_ack_are_not_published(primary: Primary, acks: list[int]) -> None:
    primary.acks = acks
    with pytest.raises(Unavailable, match="the broker ends"):
        publish(primary, 3)


@pytest.mark.parametrize("acks", [[3], [1, 2], [1, 1, 1]])
def test_references_are_published_when_all_are_acked(primary: Primary, acks: list[int]) -> None:
    primary.acks = acks
    assert publish(primary, 3) is None
