"""Publishes uploads by reference over the wire, without the client library: one file after another.

It resolves what a broken stream or a sealed segment leaves open, so that every row is published once.
"""

from __future__ import annotations

import itertools
import uuid
from contextlib import suppress

import pyarrow as pa
import pyarrow.flight as fl

from smq_core.errors import SmqError
from smq_core.model.entities import Layout, Segment, Topic
from smq_core.model.keyspace import KeyRange
from smq_proto.flight import flight_errors
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import layout_from_pb, outcome_from_pb, topic_from_pb
from smq_storage.object_store.store import Store
from support.data import uploads
from support.data.raw_flight import RawProducer
from support.waiting import eventually


class ReferencePublisher:
    """``addresses`` are those of all brokers."""

    def __init__(self, store: Store, topic: str, addresses: list[str], name: str) -> None:
        self._store = store
        self._addresses = addresses
        self._name = name
        self._instance = uuid.uuid4().hex
        self._topic_name = topic
        self._streams: dict[str, RawProducer] = {}
        self._sequences: dict[str, int] = {}
        self.resends = 0
        """How often a reference was published anew to a successor."""
        self.topic, self.layout = self.locate()

    def locate(self) -> tuple[Topic, Layout]:
        reply = pb.LocateReply.FromString(self._call("locate", pb.LocateRequest(topic=self._topic_name)))
        return topic_from_pb(reply.topic), layout_from_pb(reply.layout)

    def upload(self, messages: pa.Table) -> uploads.WrittenUpload:
        return uploads.write(self._store, self.topic.uid, f"{self._name}-{uuid.uuid4().hex}.parquet", messages)

    def publish(self, upload: uploads.WrittenUpload) -> None:
        """Returns when all rows are acked."""
        self.publish_range(upload, KeyRange(0, self.topic.spec.partitions))

    def publish_range(self, upload: uploads.WrittenUpload, partitions: KeyRange) -> None:
        """As ``publish``, for the rows of these partitions."""
        self.topic, self.layout = eventually(self.locate, "a broker answers")
        for segment in self.layout.writable_segments:
            if segment.range.overlaps(partitions):
                start, stop = max(segment.range.start, partitions.start), min(segment.range.stop, partitions.stop)
                self._publish_to(segment, upload, KeyRange(start, stop))

    def close(self) -> None:
        for stream in self._streams.values():
            stream.close()

    def _publish_to(self, segment: Segment, upload: uploads.WrittenUpload, partitions: KeyRange) -> None:
        if not upload.footer.rows_of(partitions)[1]:
            return
        sequence = self._sequences.get(segment.name, 0)
        for _ in itertools.count():
            with suppress(SmqError, AssertionError, pa.ArrowException, OSError):
                stream = self._open(segment)
                stream.publish(upload.reference(partitions), sequence)
                stream.wait_resolved(sequence)
                if sequence in stream.acked:
                    self._sequences[segment.name] = sequence + 1
                    return
            broken = self._streams.pop(segment.name, None)
            if broken is not None:
                broken.close()
            if self._is_replaced(segment):
                break
        known = self._outcome(segment).producers.get(self._name)
        if known is None or known.last_sequence < sequence:
            self.resends += 1
            eventually(lambda: segment.name not in {s.name for s in self.locate()[1].writable_segments})
            self.publish_range(upload, partitions)

    def _open(self, segment: Segment) -> RawProducer:
        stream = self._streams.get(segment.name)
        if stream is None:
            stream = self._streams[segment.name] = RawProducer(
                segment.primary.address, self.topic, segment, name=self._name, instance=self._instance
            )
            stream.wait_opened()
        return stream

    def _is_replaced(self, segment: Segment) -> bool:
        layout = eventually(self.locate, "a broker answers")[1]
        return segment.name not in {s.name for s in layout.writable_segments}

    def _outcome(self, segment: Segment):
        request = pb.OutcomeRequest(
            topic=self.topic.name, uid=self.topic.uid, segment=segment.name, producer=self._name
        )
        body = eventually(lambda: self._call("outcome", request), f"the outcome of {segment.name}")
        return outcome_from_pb(pb.SealOutcome.FromString(body))

    def _call(self, name: str, request: pb.LocateRequest | pb.OutcomeRequest) -> bytes:
        failure: Exception | None = None
        for address in self._addresses:
            try:
                with flight_errors(), fl.connect(f"grpc://{address}") as client:
                    options = fl.FlightCallOptions(timeout=5.0)
                    (answer,) = client.do_action(fl.Action(name, request.SerializeToString()), options)
                    return answer.body.to_pybytes()
            except SmqError as error:
                failure = error
        assert failure is not None
        raise failure
