"""A client's fault is one warning and a count, however often it is repeated. A bug keeps its traceback."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import grpc
import pyarrow as pa
import pyarrow.flight as fl
import pytest
from structlog.testing import capture_logs

from smq_broker.access.callers import OpenAccess
from smq_broker.runtime.log_limiter import MAX_KINDS, LogLimiter
from smq_broker.streams.relay import parse_request
from smq_broker.streams.request_limit import RequestLimit
from smq_broker.streams.server import BrokerServer, RequestHandler
from smq_core.errors import InvalidRequest, NotHosted
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL
from smq_storage.object_store.store import open_store
from support.in_memory.broker_parts import BrokerParts
from support.processes.broker import make_segment, make_topic

FRAMES = 207


class ServedSegment:
    """A Flight server with one segment."""

    def __init__(self) -> None:
        self.broker = broker = BrokerParts("b1", open_store("memory://"))
        accepting = threading.Event()
        accepting.set()
        topic = make_topic()
        segment = make_segment(topic, broker.replica)
        self.hosted = broker.opener.open(topic, segment)
        self.handler = RequestHandler(
            access=OpenAccess(),
            registry=broker.registry,
            actions=None,  # type: ignore[arg-type]
            broker_metrics=broker.metrics,
            threads=broker.threads,
            accepting_batches=accepting,
            max_batch=1 << 20,
            uploads=None,  # type: ignore[arg-type]
            clients=broker.clients,
            limit=RequestLimit(),
        )
        self.server = BrokerServer("127.0.0.1:0", self.handler)
        self.hello = pb.PutOpen(
            protocol=PROTOCOL,
            uid=topic.uid,
            incarnation=broker.replica.incarnation,
            producers=pb.ProducersHello(lane=pb.LANE_BULK),
        )

    def errors(self, code: str) -> float:
        return self.broker.metric("smq_request_errors_total", code=code)


@pytest.fixture
def served() -> Iterator[ServedSegment]:
    made = ServedSegment()
    yield made
    made.server.shutdown()


def field(number: int, value: bytes) -> bytes:
    """A field of bytes, as protobuf encodes it."""
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    head = b""
    while number >= 128:
        head += bytes([number & 127 | 128])
        number >>= 7
    return head + bytes([number])


def test_malformed_frames_are_counted_and_warned_of_once(served: ServedSegment) -> None:
    schema = served.hosted.wire.message.serialize().to_pybytes()[8:]
    descriptor = b"\x08\x02" + field(2, served.hello.SerializeToString())
    garbage = field(2, b"\x10\x00\x00\x00garbage" * 5) + field(1000, b"x")
    frames = [field(1, descriptor) + field(2, schema), garbage]
    with capture_logs() as logs, grpc.insecure_channel(f"127.0.0.1:{served.server.port}") as channel:
        put = channel.stream_stream(
            "/arrow.flight.protocol.FlightService/DoPut",
            request_serializer=lambda frame: frame,
            response_deserializer=lambda reply: reply,
        )
        for _ in range(FRAMES):
            with pytest.raises(grpc.RpcError, match="malformed"):
                list(put(iter(frames)))
    about = [line for line in logs if line["event"].startswith("request.")]
    assert [(line["event"], line["log_level"], line["code"]) for line in about] == [
        ("request.refused", "warning", "InvalidRequest")
    ] * len(about)
    # One line, and on a slow machine one more for each ten seconds.
    assert 1 <= len(about) < FRAMES / 2 and not any("exc_info" in line or "exception" in line for line in about)
    assert served.errors("InvalidRequest") == FRAMES and served.errors("Internal") == 0
    assert not served.hosted.streams and served.hosted.machine.end == 0


def test_other_rejections_are_no_warnings_and_bugs_keep_their_traceback(served: ServedSegment) -> None:
    with capture_logs() as logs:
        for error in (NotHosted("elsewhere"), InvalidRequest("wrong"), ValueError("a bug")):
            for _ in range(5):
                with pytest.raises(fl.FlightServerError), served.handler._errors("put"):
                    raise error
    assert [(line["event"], line["log_level"]) for line in logs] == [
        ("request.refused", "info"),
        ("request.refused", "warning"),
        ("request.failed", "error"),
    ]
    assert logs[2]["exc_info"]
    assert [served.errors(code) for code in ("NotHosted", "InvalidRequest", "Internal")] == [5, 5, 5]


def test_the_limiter_says_how_many_lines_it_left_out() -> None:
    now = 0.0
    limiter = LogLimiter(10.0, clock=lambda: now)
    assert limiter.admit("a") == 0
    assert [limiter.admit("a") for _ in range(4)] == [None] * 4
    assert limiter.admit("b") == 0, "another kind"
    now = 10.0
    assert limiter.admit("a") == 4
    assert limiter.admit("a") is None
    now = 30.0
    assert limiter.admit("a") == 1


def test_the_limiter_forgets_the_oldest_kinds() -> None:
    limiter = LogLimiter(10.0, clock=lambda: 0.0)
    for kind in range(MAX_KINDS + 1):
        assert limiter.admit(kind) == 0
    assert limiter.admit(0) == 0 and limiter.admit(MAX_KINDS) is None


@pytest.mark.parametrize("head", [b"GET http://[bad/ HTTP/1.1", b"GET http://h:99999999/ HTTP/1.1", b"\xff\xfe\xfd"])
def test_a_malformed_request_to_the_relay_is_invalid(head: bytes) -> None:
    with pytest.raises(InvalidRequest):
        parse_request(head + b"\r\n\r\n")


def test_a_stream_without_a_schema_is_malformed() -> None:
    from smq_broker.streams.batch_reader import BatchReader

    class Reader:
        @property
        def schema(self) -> pa.Schema:
            raise OSError("Client never sent a data message")

    with pytest.raises(InvalidRequest, match="never sent a data message"):
        _ = BatchReader(Reader()).schema
