"""A broker that the test plays, and a client whose producers share lanes to it."""

from __future__ import annotations

import queue
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

from smq.producer import Producer
from smq.producing.lanes.lanes import ProducerLanes
from smq.producing.lanes.session import ProducerSession
from smq.producing.producer_runtime import ProducerRuntime
from smq.transport.dialer import DIRECT
from smq_core.errors import SmqError
from smq_core.model.entities import Durability, Layout, Phase, Replica, Segment, Topic, TopicSpec
from smq_core.model.keyspace import KeyRange
from smq_proto.error_conversion import error_to_pb
from smq_proto.v1 import data_pb2 as pb
from support.in_memory.flight_streams import Chunk, InMemoryFlightClient, PutStream
from support.waiting import HANG_GUARD

SEGMENT = Segment(
    name="t-0-8-0",
    number=0,
    range=KeyRange(0, 8),
    phase=Phase.OPEN,
    durability=Durability.REPLICATED,
    replicas=(Replica("b", "i", "a:1"),),
)
# A message, and the number of its rows.
Frame = tuple[pb.ProducerFrame, int]


class PlayedBroker:
    """Each lane waits in ``small`` or ``bulk``."""

    def __init__(self) -> None:
        self.small: queue.Queue[PutStream] = queue.Queue()
        self.bulk: queue.Queue[PutStream] = queue.Queue()
        self.client = InMemoryFlightClient(self._serve)

    def _serve(self, command: bytes, stream: PutStream) -> None:
        hello = pb.PutOpen.FromString(command)
        assert hello.uid == "uid" and hello.incarnation == "i"
        {pb.LANE_SMALL: self.small, pb.LANE_BULK: self.bulk}[hello.producers.lane].put(stream)
        while not stream.broken.wait(0.005) and not stream.client_done.is_set():
            pass

    def accept(self, *, bulk: bool = False) -> BrokerLane:
        return BrokerLane((self.bulk if bulk else self.small).get(timeout=HANG_GUARD))


class BrokerLane:
    """The broker's end of one lane."""

    def __init__(self, stream: PutStream) -> None:
        self.stream = stream
        self.opens: dict[int, pb.ProducerFrame.Open] = {}
        self.small_batches = 0
        self.stream.write(pb.ProducerFrameReply().SerializeToString())

    def message(self) -> Frame:
        chunk = self.stream.requests.get(timeout=HANG_GUARD)
        assert isinstance(chunk, Chunk), "the stream ended"
        message = pb.ProducerFrame.FromString(chunk.app_metadata or b"")
        self.opens |= {it.session: it for it in message.opens}
        if message.HasField("small_batch"):
            assert chunk.data is None
            self.small_batches += 1
            return message, len(message.small_batch.values)
        return message, chunk.data.num_rows if chunk.data is not None else 0

    def next_batches(self, count: int = 1) -> list[tuple[int, int]]:
        """Session and sequence of each of the next batches. Sessions that are opened meanwhile are accepted."""
        found: list[tuple[int, int]] = []
        while len(found) < count:
            message, rows = self.message()
            assert rows == sum(it.rows for it in message.sub_batches)
            for it in message.opens:
                self.reply((it.session, pb.ProducerReply(opened=pb.ProducerReply.Opened(max_batch_bytes=1 << 20))))
            found += [(it.session, it.sequence) for it in message.sub_batches]
        return found

    def reply(self, *replies: tuple[int, pb.ProducerReply]) -> None:
        sessions = [pb.ProducerFrameReply.Session(session=number, reply=reply) for number, reply in replies]
        self.stream.write(pb.ProducerFrameReply(sessions=sessions).SerializeToString())

    def ack(self, *batches: tuple[int, int]) -> None:
        acks = [
            (session, pb.ProducerReply(acks=pb.ProducerReply.Acks(first_sequence=sequence, first_offsets=[sequence])))
            for session, sequence in batches
        ]
        self.reply(*acks)

    def fail(self, session: int, error: SmqError) -> None:
        self.reply((session, pb.ProducerReply(error=error_to_pb(error))))


class Client:
    """Makes producers that share their streams."""

    def __init__(self, ends: ExitStack, dialer: Any = DIRECT) -> None:
        self._ends = ends
        self.runtime = ProducerRuntime(dialer)
        ends.callback(self.runtime.close)
        layout = Layout(topic="default/t", uid="uid", partitions=8, version=1, next_number=1, segments=(SEGMENT,))
        self.view: Any = SimpleNamespace(
            name="default/t",
            snapshot=SimpleNamespace(topic=Topic("default/t", "uid", TopicSpec(partitions=8)), layout=layout),
            dialer=DIRECT,
            deleted=None,
            add_listener=lambda listener: None,
            remove_listener=lambda listener: None,
            report_unreachable_broker=lambda incarnation, what: None,
        )

    def sessions(self) -> list[ProducerSession]:
        assert isinstance(self.runtime.lanes, ProducerLanes)
        (only,) = self.runtime.lanes._lanes.values()
        return list(only._sessions.values())

    def producer(self, linger: float = 0.0) -> Producer:
        made = Producer(
            self.view,
            linger=linger,
            batch_bytes=1 << 20,
            max_in_flight=1 << 20,
            timeout=HANG_GUARD,
            producer_id=None,
            epoch=None,
            runtime=self.runtime,
        )
        self._ends.callback(made._engine.close)
        return made
