"""Requests of a connection are answered in their order, and whatever a client sends takes bounded memory."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from smq_broker.kafka.protocol.fetch_response import FetchedPartition, FetchedTopic, FetchResponse
from smq_broker.kafka.protocol.messages import API_VERSIONS, FETCH, PRODUCE, Api, ProtocolError, RequestContext
from smq_broker.kafka.transport.connection import WRITE_BYTES, packed
from smq_broker.kafka.transport.frames import FrameReader
from smq_broker.kafka.transport.limits import KafkaLimits
from smq_broker.kafka.transport.listener import KafkaListener
from smq_broker.kafka.transport.request_memory import SMALL_BYTES, RequestMemory
from smq_broker.runtime.broker_metrics import BrokerMetrics
from smq_broker.runtime.threads import ThreadSupervisor
from smq_core.model.addresses import split_address
from support.kafka_socket import KafkaSocket, request_frame
from support.waiting import HANG_GUARD, eventually

HEARTBEAT = 12
KIB = 1024


def heartbeat(correlation_id: int) -> bytes:
    return request_frame(
        HEARTBEAT, 0, correlation_id, {"group_id": "g", "generation_id": correlation_id, "member_id": "m"}
    )


def produce(correlation_id: int, size: int, acks: int = 1) -> bytes:
    topic = {"name": "t", "partition_data": [{"index": 0, "records": b"x" * size}]}
    return request_frame(PRODUCE, 9, correlation_id, {"acks": acks, "timeout": timedelta(), "topic_data": [topic]})


class Handlers:
    """A Heartbeat is answered when the loop's event ``answer`` is set; so is a Produce request with acks."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop
        self.answer = asyncio.Event()
        self.handled: list[int] = []
        self.cancelled: list[int] = []
        self.at_once = 0
        self.most_at_once = 0
        self.response = b""

    def release(self) -> None:
        self.loop.call_soon_threadsafe(self.answer.set)

    async def _wait(self, number: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.handled.append(number)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.answer.wait()
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise
        finally:
            self.at_once -= 1

    async def heartbeat(self, body: Any, context: RequestContext) -> Any:
        await self._wait(body.generation_id)
        return {"error_code": ErrorCode.none}

    async def produce(self, body: Any, context: RequestContext) -> Any:
        if body.acks == 0:
            return None
        await self._wait(len(body.topics[0].partitions[0].records))
        return {"responses": [], "throttle_time": timedelta()}

    async def fetch(self, body: Any, context: RequestContext) -> Any:
        view = memoryview(self.response)
        partition = FetchedPartition(partition=0, records=[view[:100], view[100:]])
        return FetchResponse(topics=[FetchedTopic("t", UUID(int=1), [partition])])


Start = Callable[..., KafkaListener]


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def start(handlers: Handlers, registry: CollectorRegistry) -> Iterator[Start]:
    with ExitStack() as stack:

        def begin(listen: str = "127.0.0.1:0", **limits: Any) -> KafkaListener:
            apis = {
                PRODUCE: Api(3, 9, handlers.produce),
                FETCH: Api(4, 12, handlers.fetch),
                HEARTBEAT: Api(0, 0, limits.pop("heartbeat", handlers.heartbeat)),
            }
            listener = KafkaListener(
                listen,
                apis=apis,
                registry=registry,
                threads=ThreadSupervisor(BrokerMetrics(CollectorRegistry())),
                limits=KafkaLimits(**limits),
            )
            listener.start()
            stack.callback(listener.stop, 0.1)
            return listener

        yield begin


def closed(registry: CollectorRegistry, reason: str) -> float:
    return registry.get_sample_value("smq_kafka_connections_closed_total", {"reason": reason}) or 0


def received(client: KafkaSocket, number: int, api_key: int = HEARTBEAT, version: int = 0) -> list[int]:
    return [client.receive(api_key, version)[0] for _ in range(number)]


# ---- order


def test_requests_are_handled_at_once_and_answered_in_their_order(start: Start) -> None:
    second = asyncio.Event()

    async def first_waits(body: Any, context: RequestContext) -> Any:
        if body.generation_id == 1:
            await second.wait()
        else:
            second.set()
        return {"error_code": ErrorCode.none}

    with KafkaSocket(start(heartbeat=first_waits).address) as client:
        client.socket.sendall(heartbeat(1) + heartbeat(2))
        assert received(client, 2) == [1, 2]


def test_a_request_without_a_response_keeps_nobody_waiting(start: Start, handlers: Handlers) -> None:
    handlers.answer.set()
    with KafkaSocket(start().address) as client:
        client.socket.sendall(produce(1, 9, acks=0) + heartbeat(2))
        assert received(client, 1) == [2]


def test_no_more_requests_than_the_limit_are_handled_at_once(start: Start, handlers: Handlers) -> None:
    with KafkaSocket(start(max_handled=4).address) as client:
        client.socket.sendall(b"".join(map(heartbeat, range(40))))
        eventually(lambda: len(handlers.handled) == 4)
        handlers.release()
        assert received(client, 40) == list(range(40))
    assert handlers.most_at_once == 4


def test_large_requests_of_a_connection_are_handled_one_after_the_other(start: Start, handlers: Handlers) -> None:
    with KafkaSocket(start(max_handled_bytes=100 * KIB).address) as client:
        client.socket.sendall(produce(1, 120 * KIB) + produce(2, 120 * KIB))
        eventually(lambda: handlers.handled)
        handlers.release()
        assert received(client, 2, PRODUCE, 9) == [1, 2]
    assert handlers.most_at_once == 1


def test_a_client_that_reads_nothing_gets_no_more_requests_handled(start: Start, handlers: Handlers) -> None:
    handlers.response = bytes(8 << 20)
    request = request_frame(
        FETCH,
        12,
        1,
        {"replica_id": -1, "max_wait": timedelta(), "min_bytes": 1, "topics": [], "forgotten_topics_data": []},
    )
    address = start().address
    with KafkaSocket(address) as client, KafkaSocket(address) as other:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        client.socket.sendall(request)
        client.socket.recv(1, socket.MSG_PEEK)  # the response has begun
        handlers.answer.set()
        client.socket.sendall(heartbeat(2))
        # Meanwhile the loop has looked at both sockets.
        assert answers(other) and answers(other)
        assert not handlers.handled
        correlation_id, body = client.receive(FETCH, 12)
        assert (correlation_id, body.responses[0].partitions[0].records) == (1, handlers.response)
        assert received(client, 1) == [2]


def test_a_large_response_is_sent_in_views_and_small_parts_are_joined() -> None:
    large = bytearray(range(256)) * (3 * WRITE_BYTES // 256)
    parts = packed([b"head", b"er", large, b"tail"])
    assert [len(it) for it in parts] == [6, WRITE_BYTES, WRITE_BYTES, WRITE_BYTES, 4]
    assert b"".join(parts) == b"header" + large + b"tail"
    assert all(isinstance(it, memoryview) and it.obj is large for it in parts[1:4])


# ---- what ends a connection


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (struct.pack(">i", -1), "frame_size"),
        (struct.pack(">i", 0), "frame_size"),
        (struct.pack(">i", 2**31 - 1), "frame_size"),
        (b"GET / HTTP/1.1\r\n\r\n", "frame_size"),
        (struct.pack(">ih", 5 << 20, HEARTBEAT), "frame_size"),  # only Produce requests are large
        (struct.pack(">ihhi", 8, 99, 0, 1), "unknown_api"),
        (struct.pack(">ihhi", 8, HEARTBEAT, 9, 1), "unsupported_version"),
        (heartbeat(1)[:-3] + b"\xff\xff\xff", "malformed"),
    ],
    ids=["negative", "empty", "absurd", "http", "large", "unknown", "version", "malformed"],
)
def test_bytes_that_are_no_request_close_the_connection(
    start: Start, registry: CollectorRegistry, sent: bytes, reason: str
) -> None:
    with capture_logs() as lines, KafkaSocket(start().address) as client:
        client.socket.sendall(sent)
        assert client.has_ended()
        assert closed(registry, reason) == 1
    assert [it["reason"] for it in lines if it["event"] == "kafka.connection_closed"] == [reason]


def test_a_handler_that_fails_closes_its_connection_and_is_logged_once(
    start: Start, registry: CollectorRegistry
) -> None:
    async def fails(body: Any, context: RequestContext) -> Any:
        if body.generation_id == 1:
            raise ZeroDivisionError("a bug")
        raise asyncio.CancelledError  # of something that it has waited for

    address = start(heartbeat=fails).address
    with capture_logs() as lines:
        for number in (1, 1, 2):
            with KafkaSocket(address) as client:
                client.socket.sendall(heartbeat(number))
                assert client.has_ended()
    assert closed(registry, "failed_request") == 3
    (line,) = (it for it in lines if it["event"] == "kafka.connection_closed")
    assert line["log_level"] == "error" and isinstance(line["exc_info"], ZeroDivisionError)


def test_requests_of_a_connection_that_ends_are_cancelled(start: Start, handlers: Handlers) -> None:
    listener = start()
    with KafkaSocket(listener.address) as client:
        client.socket.sendall(produce(1, SMALL_BYTES + 1))
        eventually(lambda: handlers.handled)
        assert listener.memory.reserved_bytes > SMALL_BYTES
    eventually(lambda: handlers.cancelled == handlers.handled)
    assert listener.memory.reserved_bytes == 0


def test_connections_that_do_nothing_are_closed(start: Start, registry: CollectorRegistry) -> None:
    with KafkaSocket(start(idle_seconds=0.05).address) as client:
        client.socket.sendall(heartbeat(1)[:3])
        assert client.has_ended()
    assert closed(registry, "idle") == 1


def test_there_are_limits_of_connections(start: Start, registry: CollectorRegistry) -> None:
    address = start(max_connections=2).address
    open_connections = lambda: registry.get_sample_value("smq_kafka_connections")  # noqa: E731
    with KafkaSocket(address) as first, KafkaSocket(address), KafkaSocket(address) as third:
        assert third.has_ended()
        assert open_connections() == 2
        first.socket.close()
        eventually(lambda: open_connections() == 1)
        with KafkaSocket(address) as fourth:
            assert answers(fourth)
    assert closed(registry, "limit") == 1


def test_there_is_a_limit_for_each_host(start: Start) -> None:
    host, port = split_address(start(max_connections_per_host=1).address)
    with KafkaSocket(f"{host}:{port}") as first, KafkaSocket(f"{host}:{port}") as second:
        assert second.has_ended() and answers(first)
        other = socket.create_connection((host, port), HANG_GUARD, source_address=("127.0.0.2", 0))
        with other:
            other.sendall(request_frame(API_VERSIONS, 0, 1, {}))
            assert other.recv(4)


def answers(client: KafkaSocket) -> bool:
    client.send(API_VERSIONS, 0, 3)
    return client.receive(API_VERSIONS, 0)[0] == 3


def test_it_listens_over_both_ip_versions(start: Start) -> None:
    _, port = split_address(start("[::]:0").address)
    for host in ["127.0.0.1", *(["[::1]"] if socket.has_dualstack_ipv6() else [])]:
        with KafkaSocket(f"{host}:{port}") as client:
            assert answers(client)


# ---- stop


def test_a_stop_answers_what_is_handled_and_accepts_nothing_else(start: Start, handlers: Handlers) -> None:
    listener = start()
    with KafkaSocket(listener.address) as client, KafkaSocket(listener.address) as idle:
        client.socket.sendall(heartbeat(1))
        eventually(lambda: handlers.handled)
        stopped = asyncio.run(_in_thread(lambda: listener.stop(HANG_GUARD), handlers, idle))
        assert stopped
        assert received(client, 1) == [1]
        assert client.has_ended()
    with pytest.raises(ConnectionRefusedError):
        KafkaSocket(listener.address)


async def _in_thread(stop: Callable[[], None], handlers: Handlers, idle: KafkaSocket) -> bool:
    stopping: Awaitable[None] = asyncio.create_task(asyncio.to_thread(stop))
    assert await asyncio.to_thread(idle.has_ended)  # nothing keeps it open
    assert not handlers.cancelled
    handlers.release()
    await stopping
    return True


def test_a_stop_does_not_wait_for_ever(start: Start, handlers: Handlers) -> None:
    listener = start()
    with KafkaSocket(listener.address) as client:
        client.socket.sendall(heartbeat(1))
        eventually(lambda: handlers.handled)
        listener.stop(0.01)
        assert client.has_ended()
    eventually(lambda: handlers.cancelled)


def test_a_listener_that_never_started_gives_its_port_back(handlers: Handlers, registry: CollectorRegistry) -> None:
    threads = ThreadSupervisor(BrokerMetrics(CollectorRegistry()))
    listener = KafkaListener("127.0.0.1:0", apis={}, registry=registry, threads=threads)
    listener.stop()
    with socket.create_server(split_address(listener.address)):
        pass


def test_the_process_ends_if_the_thread_dies(handlers: Handlers, registry: CollectorRegistry) -> None:
    threads = ThreadSupervisor(BrokerMetrics(CollectorRegistry()))
    listener = KafkaListener("127.0.0.1:0", apis={}, registry=registry, threads=threads)
    listener._socket.close()
    with capture_logs():
        listener.start()
        eventually(lambda: threads.process_failure)
    listener.stop()


# ---- memory of large requests


def test_large_requests_wait_for_memory_and_small_ones_do_not(start: Start, handlers: Handlers) -> None:
    listener = start(request_memory_bytes=300 * KIB)
    with ExitStack() as stack:
        first, second, small = (stack.enter_context(KafkaSocket(listener.address)) for _ in range(3))
        first.socket.sendall(produce(1, 200 * KIB))
        eventually(lambda: handlers.handled)
        second.socket.sendall(produce(2, 201 * KIB)[: 100 * KIB])
        eventually(lambda: listener.memory.is_short)
        second.socket.sendall(produce(2, 201 * KIB)[100 * KIB :])
        assert answers(small)
        assert handlers.handled == [200 * KIB]
        handlers.release()
        assert received(first, 1, PRODUCE, 9) + received(second, 1, PRODUCE, 9) == [1, 2]
    assert handlers.most_at_once == 1
    eventually(lambda: listener.memory.reserved_bytes == 0)


def test_requests_reserve_memory_for_what_they_are_decoded_to() -> None:
    def memory(api_key: int) -> int:
        reader = FrameReader(KafkaLimits())
        reader.feed(struct.pack(">ih", 1000, api_key))
        size = reader.next_size()
        assert size == 1000
        return reader.memory_of_next(size)

    assert memory(PRODUCE) == 1000, "records are views of the frame"
    assert memory(API_VERSIONS) == 30_000


def test_memory_is_given_in_turn() -> None:
    memory, served = RequestMemory(100), []
    assert memory.reserve("large", 500, lambda: None)  # alone it is more than all of the memory
    for owner in ("a", "b", "c", "d"):
        assert not memory.reserve(owner, 40, lambda owner=owner: served.append(owner))
    memory.cancel("b")
    assert served == [] and memory.is_short
    memory.release(500)
    assert served == ["a", "c"] and memory.reserved_bytes == 80
    memory.release(40)
    assert served == ["a", "c", "d"] and not memory.is_short


def test_somebody_who_gives_up_lets_those_behind_pass() -> None:
    memory, served = RequestMemory(100), []
    assert memory.reserve("first", 50, lambda: None)
    assert not memory.reserve("large", 90, lambda: served.append("large"))
    assert not memory.reserve("small", 10, lambda: served.append("small"))
    memory.cancel("large")
    assert served == ["small"]


# ---- frames


@given(st.lists(st.integers(8, 700), min_size=1, max_size=6), st.lists(st.integers(1, 900), min_size=1, max_size=8))
def test_frames_are_the_same_however_their_bytes_arrive(sizes: list[int], reads: list[int]) -> None:
    frames = [bytes([HEARTBEAT >> 8, HEARTBEAT, *(number % 251 for number in range(size - 2))]) for size in sizes]
    stream = b"".join(struct.pack(">i", len(it)) + it for it in frames)
    reader, found = FrameReader(KafkaLimits()), []
    position = 0
    while position < len(stream):
        step = reads[position % len(reads)]
        reader.feed(stream[position : position + step])
        position += step
        while (size := reader.next_size()) is not None and (frame := reader.take(size)) is not None:
            found.append(bytes(frame))
            frame[:] = b"\0" * len(frame)  # it has no other owner
    assert found == frames
    assert not reader.has_begun


def test_a_produce_request_may_be_large_and_no_larger_than_the_limit() -> None:
    limits = KafkaLimits()
    reader = FrameReader(limits)
    reader.feed(struct.pack(">ih", limits.max_request_bytes, PRODUCE))
    assert reader.next_size() == limits.max_request_bytes
    reader = FrameReader(limits)
    reader.feed(struct.pack(">i", limits.max_request_bytes + 1))
    with pytest.raises(ProtocolError):
        reader.next_size()
