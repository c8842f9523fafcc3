"""Each rule of streams and actions is violated on purpose."""

import contextlib
import itertools
import os
import socket
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from smq_broker.producers.claims import MAX_FULL_ID_CHARACTERS
from smq_core.errors import (
    InvalidRequest,
    MessageTooLarge,
    NotHosted,
    ProducerFenced,
    SchemaMismatch,
    SequenceGap,
    SmqError,
    UnknownTopic,
    WrongIncarnation,
    WrongPartition,
)
from smq_core.model.entities import Column, Durability, Segment, Topic
from smq_core.model.layout_transitions import Successor, create
from smq_proto.error_conversion import error_from_pb
from smq_proto.flight import call, from_flight
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL
from smq_storage.catalog.layouts import put_layout
from smq_storage.catalog.topics import put_current, put_topic
from smq_storage.chunks.parquet_codec import message_schema
from smq_storage.object_store.store import Store, StoreSettings
from support.data.raw_flight import RawProducer, RawReader, rows, rows_of_size
from support.processes.broker import BrokerProcess, BrokerProcesses, make_segment, make_topic
from support.processes.seaweed import Seaweed
from support.processes.stored_layouts import plan_open
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration


FLAGS = ["--max-batch", "1Mi"]
_numbers = itertools.count()


@pytest.fixture(scope="module")
def settings(seaweed: Seaweed) -> StoreSettings:
    """Of all brokers of this file."""
    return seaweed.settings(f"protocol-{uuid.uuid4().hex}", timeout=3.0)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, settings: StoreSettings) -> Iterator[BrokerProcess]:
    """One for all tests that let it run; each has its own topic."""
    brokers = BrokerProcesses(tmp_path_factory.mktemp("broker"), settings)
    try:
        yield brokers.start("b1", flags=FLAGS)[0]
    finally:
        brokers.stop()


@pytest.fixture
def own_broker(brokers: BrokerProcesses) -> BrokerProcess:
    """For tests that look at all requests of a broker, or may end it."""
    return brokers.start("own", flags=FLAGS)[0]


@pytest.fixture
def topic() -> Topic:
    return make_topic(f"default/t{next(_numbers)}")


@pytest.fixture
def segment(broker: BrokerProcess, topic: Topic) -> Segment:
    segment = make_segment(topic, broker.replica)
    broker.open(topic, segment)
    return segment


# ---- incarnations and segments


def test_another_incarnation_is_refused_everywhere(broker: BrokerProcess, topic: Topic, segment: Segment):
    with pytest.raises(WrongIncarnation):
        broker.open(topic, segment, incarnation="someone-else")
    producer = RawProducer(broker.address, topic, segment, incarnation="someone-else")
    assert isinstance(producer.wait_error(), WrongIncarnation)
    with pytest.raises(fl.FlightError) as refused:
        RawReader(broker.address, topic, segment, incarnation="someone-else").next()
    assert isinstance(from_flight(refused.value), WrongIncarnation)
    request = pb.SealSegment(protocol=PROTOCOL, topic=topic.name, uid=topic.uid, segment=segment.name, incarnation="x")
    with pytest.raises(WrongIncarnation):
        call(broker.flight, "seal", request, timeout=HANG_GUARD)
    assert broker.report(segment).state == pb.SegmentReport.OPEN


def test_open_is_repeatable_until_the_segment_is_sealed(broker: BrokerProcess, topic: Topic, segment: Segment):
    broker.open(topic, segment)
    broker.seal(topic, segment)
    broker.seal(topic, segment)
    with pytest.raises(NotHosted):
        broker.open(topic, segment)


def test_a_seal_of_what_is_not_held_forbids_it_for_ever(broker: BrokerProcess, topic: Topic, store: Store):
    segment = make_segment(topic, broker.replica, number=7)
    plan_open(store, topic, segment)
    with pytest.raises(NotHosted):
        broker.seal(topic, segment)
    with pytest.raises(NotHosted):
        broker.open(topic, segment)


def test_durability_and_replicas_must_fit(broker: BrokerProcess, topic: Topic):
    alone = replace(make_segment(topic, broker.replica), durability=Durability.REPLICATED)
    with pytest.raises(InvalidRequest, match="two or more"):
        broker.open(topic, alone)


def test_topics_made_again_do_not_meet_their_old_segments(broker: BrokerProcess, topic: Topic, segment: Segment):
    broker.seal(topic, segment)
    again = make_topic(topic.name)
    same_name = make_segment(again, broker.replica)
    assert same_name.name == segment.name
    broker.open(again, same_name)
    producer = RawProducer(broker.address, again, same_name)
    assert producer.wait_acked(producer.send(rows([b"v"]))) == 0


# ---- sequences and epochs


def test_a_gap_ends_the_stream_and_says_what_is_expected(broker: BrokerProcess, topic: Topic, segment: Segment):
    producer = RawProducer(broker.address, topic, segment)
    producer.wait_acked(producer.send(rows([b"0"])))
    producer.send(rows([b"5"]), sequence=5)
    error = producer.wait_error()
    assert isinstance(error, SequenceGap) and error.expected == 1
    assert broker.report(segment).end == 1


def test_repeats_after_a_reconnect_are_acked_with_the_same_offsets(
    broker: BrokerProcess, topic: Topic, segment: Segment
):
    first = RawProducer(broker.address, topic, segment)
    offsets = [first.wait_acked(first.send(rows_of_size(1 + i, 10))) for i in range(5)]
    first.drop_connections()
    second = RawProducer(broker.address, topic, segment)
    assert second.wait_opened().last_sequence == 4
    for sequence in range(5):
        second.send(rows_of_size(1 + sequence, 10), sequence=sequence)
    assert [second.wait_acked(s) for s in range(5)] == offsets
    assert second.wait_acked(second.send(rows([b"new"]))) == 15
    assert broker.report(segment).messages == 16


def test_a_newer_epoch_fences_the_older(broker: BrokerProcess, topic: Topic, segment: Segment):
    old = RawProducer(broker.address, topic, segment, epoch=1)
    old.wait_acked(old.send(rows([b"old"])))
    new = RawProducer(broker.address, topic, segment, epoch=2)
    assert not new.wait_opened().HasField("last_sequence")
    new.wait_acked(new.send(rows([b"new"])))
    old.send(rows([b"zombie"]))
    error = old.wait_error()
    assert isinstance(error, ProducerFenced) and error.epoch == 2
    late = RawProducer(broker.address, topic, segment, epoch=1)
    assert isinstance(late.wait_error(), ProducerFenced)
    assert broker.report(segment).end == 2


# ---- valid batches


def test_a_batch_outside_of_the_range_is_refused(broker: BrokerProcess, topic: Topic):
    segment = make_segment(topic, broker.replica, start=100, stop=200)
    broker.open(topic, segment)
    for partition in (99, 200):
        producer = RawProducer(broker.address, topic, segment)
        producer.send(rows([b"v"], partition=partition))
        assert isinstance(producer.wait_error(), WrongPartition)
    assert broker.report(segment).end == 0


def test_another_schema_is_refused_with_the_expected_one(broker: BrokerProcess, topic: Topic, segment: Segment):
    schema = message_schema((Column("delay", "float64"),))
    producer = RawProducer(broker.address, topic, segment, schema=schema)
    error = producer.wait_error()
    assert isinstance(error, SchemaMismatch) and "value binary" in str(error.expected)


def test_nulls_where_there_may_be_none_are_refused(broker: BrokerProcess, topic: Topic, segment: Segment):
    good = rows([b"a", b"b"])
    lax = pa.schema([field.with_nullable(True) for field in good.schema])
    columns = [pa.array([1, None], pa.int32()), *good.columns[1:]]
    producer = RawProducer(broker.address, topic, segment, schema=lax)
    producer.wait_acked(producer.send(pa.RecordBatch.from_arrays(good.columns, schema=lax)))
    producer.send(pa.RecordBatch.from_arrays(columns, schema=lax))
    assert isinstance(producer.wait_error(), SchemaMismatch)


def test_too_large_and_empty_batches_are_refused(broker: BrokerProcess, topic: Topic, segment: Segment):
    producer = RawProducer(broker.address, topic, segment)
    assert producer.wait_opened().max_batch_bytes == 1 << 20
    producer.send(rows_of_size(1, (1 << 20) + 5000))
    assert isinstance(producer.wait_error(), MessageTooLarge)
    producer = RawProducer(broker.address, topic, segment)
    producer.send(rows_of_size(0, 1))
    assert isinstance(producer.wait_error(), InvalidRequest)


def test_garbage_never_ends_a_broker(own_broker: BrokerProcess, topic: Topic):
    broker, segment = own_broker, make_segment(topic, own_broker.replica)
    broker.open(topic, segment)
    host, port = broker.address.split(":")
    for garbage in (
        b"GET / HTTP/1.1\r\n\r\n",
        os.urandom(100_000),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + os.urandom(999),
    ):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(garbage)
    client = broker.flight
    schema = message_schema()
    for command in (b"", b"\xff\xfe garbage", pb.PutOpen(uid="x").SerializeToString()):
        writer, _ = client.do_put(fl.FlightDescriptor.for_command(command), schema)
        with pytest.raises((pa.ArrowException, OSError)):
            writer.done_writing()
            writer.close()
    writer, _ = client.do_put(fl.FlightDescriptor.for_path("a", "b"), schema)
    with pytest.raises((pa.ArrowException, OSError)):
        writer.done_writing()
        writer.close()
    for ticket in (b"", b"\xff\xfe garbage"):
        with pytest.raises(fl.FlightError) as refused:
            client.do_get(fl.Ticket(ticket)).read_chunk()
        assert isinstance(from_flight(refused.value), SmqError)
    for action in ("", "nothing", "open", "seal", "outcome", "locate"):
        with pytest.raises((pa.ArrowException, OSError)) as failed:
            list(client.do_action(fl.Action(action, b"\xff\xff\xff")))
        assert isinstance(from_flight(failed.value), InvalidRequest)
    with pytest.raises(InvalidRequest):
        call(client, "open", pb.OpenSegment(protocol=99), timeout=HANG_GUARD)
    with pytest.raises(WrongIncarnation):
        call(client, "open", pb.OpenSegment(protocol=PROTOCOL), timeout=HANG_GUARD)
    producer = RawProducer(broker.address, topic, segment)
    producer.send_raw(rows([b"v"]), b"\xff\xff garbage")
    assert isinstance(producer.wait_error(), InvalidRequest)
    survivor = RawProducer(broker.address, topic, segment, name="q")
    survivor.wait_acked(survivor.send(rows([b"v"])))
    assert broker.running


def test_strangers_cannot_fill_the_log(own_broker: BrokerProcess):
    def refused(action: str) -> None:
        with pytest.raises((pa.ArrowException, OSError)) as failed:
            list(own_broker.flight.do_action(fl.Action(action, b"")))
        assert len(str(failed.value)) < 4000

    for number in range(20):
        refused(f"{number}" + "x" * 1_000_000)
        refused(f"{number}\x1b[2J")
    refused("open")
    eventually(lambda: any(it["what"] == "open" for it in own_broker.events("request.refused")), what="it is logged")
    written = own_broker.log.read_text()
    assert written.count("unknown action") == 1 and len(written) < 50_000 and "\\u001b" not in written


@pytest.mark.parametrize("name", ["\x1b[2J", "p" * (MAX_FULL_ID_CHARACTERS + 1)])
def test_names_of_producers_are_printable_and_short(
    broker: BrokerProcess, topic: Topic, segment: Segment, name: str
) -> None:
    assert "printable characters" in RawProducer(broker.address, topic, segment, name=name).wait_error().message


def test_requests_are_bounded(broker: BrokerProcess):
    large = bytes(5 << 20)
    with pytest.raises((pa.ArrowException, OSError)) as failed:
        list(broker.flight.do_action(fl.Action("status", large)))
    assert "at most" in from_flight(failed.value).message
    with pytest.raises((pa.ArrowException, OSError)) as failed:
        broker.flight.do_get(fl.Ticket(large)).read_chunk()
    assert "at most" in from_flight(failed.value).message


def test_damaged_offsets_are_refused(broker: BrokerProcess, topic: Topic, segment: Segment):
    """They would crash the process when the batch is copied or written."""
    good = rows([b"a", b"b"])
    offsets = pa.array([0, 1 << 20, 3], pa.int32()).buffers()[1]
    data = pa.py_buffer(b"abc")
    wrong = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, data])
    batch = pa.RecordBatch.from_arrays([*good.columns[:3], wrong, good.columns[4]], schema=good.schema)
    producer = RawProducer(broker.address, topic, segment)
    producer.send(batch)
    assert isinstance(producer.wait_error(), SmqError)
    assert broker.report(segment).end == 0


# ---- replication


def test_only_the_primary_may_replicate(brokers: BrokerProcesses, topic: Topic):
    one, two = brokers.start("b1", "b2")
    segment = make_segment(topic, one.replica, two.replica)
    two.open(topic, segment)
    hello = pb.PutOpen(
        protocol=PROTOCOL,
        incarnation=two.incarnation,
        replica=pb.ReplicaHello(primary_incarnation="an impostor", connection="one", lane=pb.LANE_SMALL),
    )
    descriptor = fl.FlightDescriptor.for_command(hello.SerializeToString())
    writer, reader = two.flight.do_put(descriptor, pa.schema([]))
    opening = pb.ReplicationFrame.Open(segment=segment.name, uid=topic.uid)
    frame = pb.ReplicationFrame(parts=[pb.ReplicationFrame.Part(session=1, open=opening)], number=1)
    writer.write_metadata(frame.SerializeToString())
    first, second = (pb.ReplicationFrameReply.FromString(bytes(reader.read())) for _ in range(2))
    assert not first.parts, "the first reply comes at once"
    (refused,) = second.parts
    assert isinstance(error_from_pb(refused.reply.error), WrongIncarnation)
    writer.done_writing()
    writer.close()
    producer = RawProducer(two.address, topic, segment, incarnation=two.incarnation)
    error = producer.wait_error()
    assert isinstance(error, NotHosted) and error.primary == one.address


def test_a_follower_that_opens_late_is_waited_for(brokers: BrokerProcesses, topic: Topic):
    one, two = brokers.start("b1", "b2")
    segment = make_segment(topic, one.replica, two.replica)
    one.open(topic, segment)
    producer = RawProducer(one.address, topic, segment)
    sequence = producer.send(rows([b"v"]))
    eventually(lambda: one.report(segment).end == 1)
    assert sequence not in producer.acked
    two.open(topic, segment)
    producer.wait_acked(sequence)


# ---- readers


def test_a_reader_below_the_tail_is_sent_to_the_filer(broker: BrokerProcess, topic: Topic, brokers: BrokerProcesses):
    (two,) = brokers.start("b2")
    segment = make_segment(topic, broker.replica, two.replica)
    for each in (broker, two):
        each.open(topic, segment)
    producer = RawProducer(broker.address, topic, segment)
    producer.wait_acked(producer.send(rows_of_size(10, 100)))
    broker.flush(topic, segment)
    eventually(lambda: two.report(segment).chain_end == 10, what="the follower trims")
    producer.wait_acked(producer.send(rows_of_size(10, 100)))
    for each in (broker, two):
        eventually(lambda each=each: each.report(segment).watermark == 20)
        reader = RawReader(each.address, topic, segment, incarnation=each.incarnation)
        assert reader.last().trimmed_to == 10
        reader = RawReader(each.address, topic, segment, 15, incarnation=each.incarnation)
        assert reader.until(20).num_rows == 5
        reader.cancel()


def test_a_reader_at_the_end_needs_no_filer_for_what_was_just_written(
    broker: BrokerProcess, topic: Topic, segment: Segment
):
    """In a Stored segment each batch leaves the tail at the moment when it becomes readable."""
    reader = RawReader(broker.address, topic, segment, incarnation=broker.incarnation)
    assert reader.next() is not None
    producer = RawProducer(broker.address, topic, segment)
    for number in range(30):
        producer.wait_acked(producer.send(rows([b"%d" % number])))
    assert reader.until(30).column("value").to_pylist() == [b"%d" % n for n in range(30)]
    broker.seal(topic, segment)
    assert reader.last().sealed.end == 30


def test_an_idle_reader_gets_heartbeats_with_the_watermark(own_broker: BrokerProcess, topic: Topic):
    broker, segment = own_broker, make_segment(topic, own_broker.replica)
    broker.open(topic, segment)
    reader = RawReader(broker.address, topic, segment, incarnation=broker.incarnation)
    for _ in range(3):
        frame = reader.next()
        assert frame is not None and frame[1].num_rows == 0 and frame[0].watermark == 0
    reader.cancel()
    eventually(lambda: 'smq_streams{kind="reader"} 0.0' in broker.get("/metrics")[1])


# ---- successors


@pytest.mark.slow
def test_a_successor_opens_only_after_its_predecessors_seals(
    broker: BrokerProcess, topic: Topic, brokers: BrokerProcesses
):
    (two,) = brokers.start("b2")
    left = make_segment(topic, broker.replica, stop=512)
    right = make_segment(topic, broker.replica, start=512, number=1)
    merged = make_segment(topic, two.replica, number=2, predecessors=[left, right])
    broker.open(topic, left)
    broker.open(topic, right)
    two.open(topic, merged)
    assert two.report(merged).state == pb.SegmentReport.WAITING
    early = RawProducer(two.address, topic, merged, name="early")
    early.wait_opened()
    sequence = early.send(rows([b"early"]))
    producer = RawProducer(broker.address, topic, left)
    producer.wait_acked(producer.send(rows([b"old"])))
    broker.seal(topic, left, [merged])
    assert [s.name for s in producer.wait_sealed().successors] == [merged.name]
    late = RawProducer(two.address, topic, merged, name="late")
    late.wait_opened()
    assert two.report(merged).state == pb.SegmentReport.WAITING
    assert not early.acked and early.error is None
    broker.seal(topic, right, [merged])
    early.wait_acked(sequence)
    late.wait_acked(late.send(rows([b"new"])))


def test_a_producer_that_writes_after_the_seal_affects_nobody(own_broker: BrokerProcess, topic: Topic):
    broker, segment = own_broker, make_segment(topic, own_broker.replica)
    broker.open(topic, segment)
    producer = RawProducer(broker.address, topic, segment)
    producer.wait_acked(producer.send(rows([b"v"])))
    broker.seal(topic, segment)
    producer.wait_sealed()
    with contextlib.suppress(pa.ArrowException, OSError):
        producer.send(rows([b"late"]))
    producer.close()
    assert broker.outcome(topic, segment).end == 1
    assert not broker.events("request.failed")


@pytest.mark.slow
def test_locate_and_outcome_need_no_leader(broker: BrokerProcess, store: Store, brokers: BrokerProcesses):
    topic = make_topic("travel/flights")
    whole = Successor(make_segment(topic, broker.replica).range, (broker.replica,), Durability.STORED)
    layout = create(topic.name, topic.uid, topic.spec.partitions, [whole], now=1, writer="w")
    with pytest.raises(UnknownTopic):
        call(broker.flight, "locate", pb.LocateRequest(topic="travel/flights"), timeout=HANG_GUARD)
    put_topic(store, topic)
    put_layout(store, layout, None)
    put_current(store, topic.name, topic.uid, None)
    located = pb.LocateReply.FromString(
        call(broker.flight, "locate", pb.LocateRequest(topic="travel/flights"), timeout=HANG_GUARD)
    )
    assert located.layout.segments[0].replicas[0].address == broker.address
    assert located.store_url.startswith("s3://smq/") and located.store_options["endpoint"]
    broker.open(topic, layout.segments[0])
    broker.seal(topic, layout.segments[0])
    (other,) = brokers.start("b2")
    assert other.outcome(topic, layout.segments[0]).end == 0
