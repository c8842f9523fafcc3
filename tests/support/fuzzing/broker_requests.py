"""What callers send to a broker, given to its handlers in this process: streams, tickets, bodies of actions."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from smq_broker.access.callers import OpenAccess
from smq_broker.replication.connection import NO_SCHEMA
from smq_broker.streams.request_limit import RequestLimit
from smq_broker.streams.server import RequestHandler
from smq_proto.flight import from_flight
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL, segment_to_pb, topic_to_pb
from smq_storage.catalog.topics import put_current, put_topic
from smq_storage.object_store.store import open_store
from support.data.raw_flight import rows
from support.fuzzing.mutator import Mutator
from support.fuzzing.targets import Target
from support.in_memory.broker_parts import BrokerParts
from support.in_memory.flight_streams import CallContext, Chunk, PutStream
from support.processes.broker import make_segment, make_topic
from support.processes.stored_layouts import plan_open

TOPIC = make_topic("travel/flights")
# Each has several frames and a thread.
STREAM_SHARE = 0.05
MESSAGE_SCHEMA = rows([b"a"]).schema
Frame = tuple[pa.RecordBatch | None, bytes]


class InternalError(Exception):
    """The handler has failed by a mistake of ours."""


class AttackedBroker:
    """A primary of one segment and a follower of another. ``requests`` are valid ones, by action."""

    def __init__(self) -> None:
        store = open_store("memory://")
        self.parts, self.other = BrokerParts("b1", store), BrokerParts("b2", store)
        own, other = self.parts.replica, self.other.replica
        self.led = make_segment(TOPIC, own, stop=512)
        self.followed = make_segment(TOPIC, other, own, start=512, number=1)
        put_topic(store, TOPIC)
        put_current(store, TOPIC.name, TOPIC.uid, etag=None)
        for segment in (self.led, self.followed):
            plan_open(store, TOPIC, segment)
            self.parts.opener.open(TOPIC, segment)
        registry: Any = self.parts.registry
        registry.find = functools.partial(registry.find, wait_seconds=0.0)  # nobody will open what is made up
        self.handler = RequestHandler(
            access=OpenAccess(),
            registry=registry,
            actions=self.parts.actions(),
            broker_metrics=self.parts.metrics,
            threads=self.parts.threads,
            accepting_batches=self.parts.accepting_batches,
            max_batch=1 << 20,
            uploads=self.parts.uploads,
            clients=self.parts.clients,
            limit=RequestLimit(),
        )
        names = {"topic": TOPIC.name, "uid": TOPIC.uid, "segment": self.led.name}
        opened = pb.OpenSegment(
            protocol=PROTOCOL,
            topic=topic_to_pb(TOPIC),
            segment=segment_to_pb(self.led),
            incarnation=own.incarnation,
        )
        self.requests: dict[str, Message] = {
            "open": opened,
            "seal": pb.SealSegment(protocol=PROTOCOL, incarnation=own.incarnation, **names),
            "segments": pb.HostedSegmentsRequest(uid=TOPIC.uid),
            "outcome": pb.OutcomeRequest(**names),
            "claim": pb.ClaimProducer(topic=TOPIC.name, uid=TOPIC.uid, producer="p", instance="i"),
            "locate": pb.LocateRequest(topic=TOPIC.name),
            "grants": pb.PresentGrants(grants=[pb.SignedGrant(grant=b"g", signature=b"s")]),
            "status": Empty(),
        }
        self.words = (*names.values(), self.followed.name, own.incarnation, other.incarnation, "p", "q", "c")

    def stop(self) -> None:
        for parts in (self.parts, self.other):
            parts.stop()

    def check_alive(self) -> None:
        """Raises unless a valid request is answered as before."""
        found = self._answer("segments", self.requests["segments"].SerializeToString())
        assert len(pb.HostedSegments.FromString(found).segments) == 2

    def _answer(self, action: str, body: bytes) -> bytes:
        (answer,) = self.handler.act(CallContext(), fl.Action(action, body))
        return answer

    # ---- inputs

    def targets(self) -> list[Target]:
        made = [self._action_target(name, request) for name, request in self.requests.items()]
        made.append(Target("ticket", self._ticket, self._read, words=self.words))
        for name, make in (("producers", self._producers), ("replica", self._replica)):
            made.append(Target(f"lane of {name}", make, self._put, share=STREAM_SHARE, words=self.words))
        return made

    def _action_target(self, name: str, request: Message) -> Target:
        def body(mutator: Mutator) -> bytes:
            if mutator.random.random() < 0.5:
                return mutator.data([request.SerializeToString()])
            return mutator.message(type(request)).SerializeToString()

        def act(given: bytes) -> None:
            with _no_internal_error():
                self.handler.act(CallContext(), fl.Action(name, given))

        return Target(f"action {name}", body, act, words=self.words)

    def _ticket(self, mutator: Mutator) -> bytes:
        incarnation = self.parts.replica.incarnation
        valid = pb.TailTicket(protocol=PROTOCOL, segment=self.led.name, uid=TOPIC.uid, incarnation=incarnation)
        if mutator.random.random() < 0.5:
            return mutator.data([valid.SerializeToString()])
        made = mutator.message(pb.TailTicket)
        made.MergeFrom(pb.TailTicket(protocol=PROTOCOL, incarnation=incarnation))
        return made.SerializeToString()

    def _read(self, ticket: bytes) -> None:
        with _no_internal_error():
            self.handler.get(CallContext(), fl.Ticket(ticket))

    def _producers(self, mutator: Mutator) -> tuple[bytes, Sequence[Frame]]:
        hello = self.parts.hello(TOPIC.uid, mutator.random.choice((pb.LANE_SMALL, pb.LANE_BULK)))
        opening = pb.ProducerFrame()
        opening.opens.add(session=1, segment=self.led.name, producer=pb.ProducerHello(producer="p", epoch=1))
        sent = _plausible_frame(mutator)
        frames = [(None, opening.SerializeToString()), (None, sent.SerializeToString())]
        return _changed(mutator, hello), [*frames, *self._frames(mutator, pb.ProducerFrame, sent)]

    def _replica(self, mutator: Mutator) -> tuple[bytes, Sequence[Frame]]:
        primary = self.other.replica.incarnation
        replica = pb.ReplicaHello(primary_incarnation=primary, connection="c", lane=pb.LANE_SMALL)
        hello = pb.PutOpen(protocol=PROTOCOL, incarnation=self.parts.replica.incarnation, replica=replica)
        opening = pb.ReplicationFrame.Open(segment=self.followed.name, uid=TOPIC.uid)
        opened = pb.ReplicationFrame(parts=[pb.ReplicationFrame.Part(session=1, open=opening)], number=1)
        entry = pb.ReplicationBatch.Entry(producer="p", epoch=1, rows=1, partition_min=600, partition_max=600)
        small = pb.SmallBatch(partitions=[600], timestamps=[1], values=[b"v"])
        header = pb.ReplicationBatch(entries=[entry], watermark=0, small_batch=small)
        header = header if mutator.random.random() < 0.5 else mutator.message(pb.ReplicationBatch)
        body = (
            mutator.data([header.SerializeToString()]) if mutator.random.random() < 0.5 else header.SerializeToString()
        )
        encoded = mutator.random.choice((b"", mutator.data([rows([b"a"]).serialize().to_pybytes()])))
        part = pb.ReplicationFrame.Part(session=1, header=body, rows=encoded)
        sent = pb.ReplicationFrame(parts=[part], number=2)
        frames = [(None, opened.SerializeToString()), (None, sent.SerializeToString())]
        return _changed(mutator, hello), [*frames, *self._frames(mutator, pb.ReplicationFrame, sent)]

    def _frames(self, mutator: Mutator, kind: type[Message], sample: Message) -> Iterator[Frame]:
        for _ in range(mutator.random.randint(1, 3)):
            if mutator.random.random() < 0.5:
                metadata = mutator.data([sample.SerializeToString()])
            else:
                metadata = mutator.message(kind).SerializeToString()
            batch = rows([b"a", b"b"], partition=1) if mutator.random.random() < 0.3 else None
            yield batch, metadata

    def _put(self, given: tuple[bytes, Sequence[Frame]]) -> None:
        command, frames = given
        is_replica = b"i-b2" in command
        stream = PutStream(NO_SCHEMA if is_replica else MESSAGE_SCHEMA)
        for batch, metadata in frames:
            stream.requests.put(Chunk(batch, metadata))
        stream.done_writing()
        with _no_internal_error():
            self.handler.put(CallContext(), fl.FlightDescriptor.for_command(command), stream, stream)
        while not stream.replies.empty():
            reply = stream.replies.get()
            if b"failed: " in reply:  # the error of one session, which hides a mistake of ours
                raise InternalError(reply)


def _plausible_frame(mutator: Mutator) -> pb.ProducerFrame:
    """Sub-batches of the open session that often fit their rows, and references to any upload."""
    frame, rng = pb.ProducerFrame(), mutator.random
    for number in range(rng.randint(1, 3)):
        added = frame.sub_batches.add(session=1, sequence=rng.choice((number, number, 7, (1 << 64) - 1)))
        if rng.random() < 0.3:
            added.reference.CopyFrom(mutator.message(pb.Reference))
        else:
            added.rows = rng.choice((1, 1, 1, 2, 2, 2, 0))
            added.large_values.extend(mutator.name() for _ in range(rng.choice((0, 0, 1, 2))))
    rows_sent = sum(it.rows for it in frame.sub_batches)
    partitions = [rng.choice((0, 1, 511, 512, (1 << 32) - 1)) for _ in range(rows_sent)]
    times = [rng.choice((0, 1, -1, (1 << 63) - 1, -(1 << 63))) for _ in range(rows_sent)]
    values = [rng.choice((b"", b"v", b"v" * 70_000)) for _ in range(rows_sent)]
    if rows_sent:
        frame.small_batch.CopyFrom(pb.SmallBatch(partitions=partitions, timestamps=times, values=values))
    return frame


def _changed(mutator: Mutator, hello: pb.PutOpen) -> bytes:
    """Most of them get through, so that their frames are read."""
    encoded = hello.SerializeToString()
    return encoded if mutator.random.random() < 0.8 else mutator.data([encoded])


@contextmanager
def _no_internal_error() -> Iterator[None]:
    """Raises the SmqError of a Flight error, as a client gets it."""
    try:
        yield
    except fl.FlightError as error:
        found = from_flight(error)
        if not getattr(error, "extra_info", None) or found.message.startswith("the broker failed"):
            raise InternalError(found.message) from error
        raise found from None
