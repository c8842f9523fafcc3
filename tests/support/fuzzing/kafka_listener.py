"""A listener for Kafka clients in this process, which malformed requests go through as through a socket.

It leads all partitions of one topic without followers, so that a batch is acked when it is in a file.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from typing import Any

from kio.index import load_response_schema
from kio.serial import entity_reader
from prometheus_client import CollectorRegistry

from smq_broker.kafka.cluster import KafkaCluster
from smq_broker.kafka.executor import LoopCalls
from smq_broker.kafka.protocol.api_versions import with_api_versions
from smq_broker.kafka.protocol.messages import API_VERSIONS, ApiTable
from smq_broker.kafka.protocol.sessions import OpenAccess
from smq_broker.kafka.service import api_table
from smq_broker.kafka.topics import KafkaTopics, topic_id
from smq_broker.kafka.transport.connection import Connection
from smq_broker.kafka.transport.limits import KafkaLimits
from smq_broker.kafka.transport.metrics import KafkaMetrics
from smq_broker.kafka.transport.request_memory import RequestMemory
from smq_broker.leader_client.locator import Locator
from smq_broker.runtime.log_limiter import LogLimiter
from smq_core.kafka_groups.requests import GroupSettings
from smq_core.model.keyspace import Partitioner
from smq_storage.catalog.kafka_names import topic_of_kafka_name
from smq_storage.catalog.topics import put_current, put_topic, topics_with_folders
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.store import StoreSettings, open_store
from support.fuzzing.kafka_requests import RequestMaker
from support.fuzzing.mutator import Mutator
from support.fuzzing.targets import Target
from support.in_memory.broker_parts import BrokerParts
from support.processes.broker import make_segment, make_topic
from support.processes.stored_layouts import plan_open

PARTITIONS = 4
# How long a client waits for its answers before it disconnects. Some have none within that: a group waits for others.
ANSWER_SECONDS = 0.02
MAX_BATCH = 1 << 20
_HEADER = struct.Struct(">ihhi")
WORDS = (*["events"] * 12, "absent", "e" * 249, "e" * 250, "server.schema.table", "retention.ms", "1")


class AttackedListener:
    """``stop`` ends its threads."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.store = open_store("memory://")
        self.parts = BrokerParts("b1", self.store)
        self.topic = make_topic("default/events", partitioner=Partitioner.KAFKA, partitions=PARTITIONS)
        self.segment = make_segment(self.topic, self.parts.replica)
        put_topic(self.store, self.topic)
        put_current(self.store, self.topic.name, self.topic.uid, etag=None)
        plan_open(self.store, self.topic, self.segment)
        self.parts.opener.open(self.topic, self.segment)
        self.parts.flusher.start()
        self.apis: ApiTable
        self.limits = KafkaLimits()
        self.memory = RequestMemory(self.limits.request_memory_bytes)
        self.metrics = KafkaMetrics(CollectorRegistry())
        self.log_limiter = LogLimiter()
        self.loop.run_until_complete(self._begin())
        self.maker = RequestMaker(self.apis, WORDS, [topic_id(self.topic.uid)])

    async def _begin(self) -> None:
        locator = Locator(self.store, StoreSettings(url="memory://"))
        cluster = KafkaCluster(
            cluster_id="c",
            incarnation=self.parts.replica.incarnation,
            address=lambda: "127.0.0.1:9092",
            listeners=dict,
        )
        topics = KafkaTopics(
            locator, lambda: topics_with_folders(self.store), lambda name: topic_of_kafka_name(self.store, name)
        )
        apis = api_table(
            cluster=cluster,
            registry=self.parts.registry,
            store=self.store,
            topics=topics,
            calls=LoopCalls(self.loop),
            max_batch=MAX_BATCH,
            group_settings=GroupSettings(),
            admin=None,
        )
        self.apis = with_api_versions(apis)

    def admit(self, connection: Connection, host: str) -> bool:
        return True

    def discard(self, connection: Connection, host: str) -> None: ...

    def targets(self) -> list[Target]:
        return [
            Target("valid requests of Kafka", self._valid, self.take, ()),
            Target("malformed requests of Kafka", self._malformed, self.take, ()),
        ]

    def _valid(self, mutator: Mutator) -> bytes:
        return b"".join(self.maker.frame(mutator) for _ in range(mutator.random.choice((1, 1, 1, 2, 5))))

    def _malformed(self, mutator: Mutator) -> bytes:
        frames = [self.maker.frame(mutator) for _ in range(mutator.random.choice((1, 1, 2)))]
        changed = [mutator.data([it]) for it in frames]
        if mutator.random.random() < 0.7:  # the right length, so that the request is decoded
            changed = [struct.pack(">i", len(it[4:])) + it[4:] for it in changed]
        return b"".join(changed)

    def take(self, received: bytes) -> None:
        self.loop.run_until_complete(self._take(received))

    async def _take(self, received: bytes) -> None:
        transport = RecordingTransport()
        connection = CheckedConnection(self, OpenAccess())
        connection.connection_made(transport)
        middle = len(received) // 2
        for part in (received[:middle], received[middle:]):
            if part and not transport.is_closing():
                connection.data_received(part)
        tasks = [it.task for it in connection._places if it.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=ANSWER_SECONDS)
        connection.connection_lost(None)
        if tasks:
            await asyncio.wait(tasks)
        assert not connection.failures, repr(connection.failures[0])
        assert self.memory.reserved_bytes == 0, "memory of a request is still reserved"
        self._check_answers(received, bytes(transport.written))

    def _check_answers(self, received: bytes, written: bytes) -> None:
        """Every answer is one to a request, and can be decoded."""
        sent: dict[int, set[tuple[int, int]]] = {}
        for frame in frames(received):
            if len(frame) >= _HEADER.size - 4:
                key, version, correlation = struct.unpack_from(">hhi", frame)
                sent.setdefault(correlation, set()).add((key, version))
        for frame in frames(written):
            (correlation,) = struct.unpack_from(">i", frame)
            requested = sent[correlation]
            if len(requested) == 1:
                self.maker.learn(self._decoded(*next(iter(requested)), frame))

    def _decoded(self, key: int, version: int, frame: bytes) -> Any:
        if key == API_VERSIONS and version not in range(5):
            version = 0
        schema = load_response_schema(key, version)
        _, header_size = entity_reader(schema.__header_schema__)(frame, 0)
        body, size = entity_reader(schema)(frame, header_size)
        assert header_size + size == len(frame), "bytes follow an answer"
        return body

    def check(self) -> int:
        """Seals the segment. The files have as many messages of each partition as the segment has counted.

        Returns how many messages there are.
        """
        failures = self.parts.metrics.registry.get_sample_value("smq_task_failures_total", {"task": "flush"})
        assert not failures, f"{failures} flushes have failed"
        hosted = self.parts.hosted(self.topic, self.segment)
        with hosted as machine:
            ends = {number: machine.partition_end(number) for number in range(PARTITIONS)}
        outcome = self.parts.seal(self.topic, self.segment)
        chain = ChunkChain(self.store, self.topic.name, self.topic.uid, self.segment.name)
        found: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)
        for info in chain.walk():
            chunk = chain.read(info.first)
            if chunk is not None:
                for number in chunk[1].column("partition").to_pylist():
                    found[number] += 1
        assert found == ends and sum(found.values()) == outcome.end, (found, ends, outcome)
        return sum(found.values())

    def stop(self) -> None:
        self.parts.stop()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()


class CheckedConnection(Connection):
    """``failures`` are errors that no handler may have."""

    def __init__(self, host: Any, access: OpenAccess) -> None:
        super().__init__(host, access)
        self.failures: list[BaseException] = []

    def _end(self, reason: str, message: str, *, error: BaseException | None = None) -> None:
        if error is not None and not isinstance(error, asyncio.CancelledError):
            self.failures.append(error)
        super()._end(reason, message, error=error)


class RecordingTransport(asyncio.Transport):
    """Sends nothing; ``written`` is what it should have sent."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.written = bytearray()
        self._closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def close(self) -> None:
        self._closed = True

    abort = close

    def is_closing(self) -> bool:
        return self._closed

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


def frames(data: bytes) -> Iterator[bytes]:
    """The whole ones, without their lengths."""
    at = 0
    while at + 4 <= len(data):
        (size,) = struct.unpack_from(">i", data, at)
        if size < 0 or at + 4 + size > len(data):
            return
        yield data[at + 4 : at + 4 + size]
        at += 4 + size
