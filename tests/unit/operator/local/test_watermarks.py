"""If everything of one machine ends at once, the next leader says which acked messages are lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smq_operator.local.watermarks import WatermarkRecorder
from smq_proto.v1 import admin_pb2
from smq_storage.object_store.store import open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, running_leader
from support.virtual_time import virtual_time
from support.waiting import wait_until

TOPIC = "default/t"


class Machine:
    """Brokers in memory, and one leader after the other in the same folder."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.store = open_store("memory://")
        self.fleet, self.platform = FakeFleet(self.store), FakePlatform(2)
        self.platform.add_topic(TOPIC)
        self.start_brokers()

    def recorded(self) -> str:
        return self.file.read_text() if self.file.exists() else '{"watermarks": {}}'

    def start_brokers(self) -> None:
        for number in range(2):
            self.fleet.add(f"b{number}")

    def end_brokers(self) -> None:
        for broker in self.fleet.brokers.values():
            broker.living = False
            self.platform.terminated[broker.replica.incarnation] = "the machine was rebooted since"

    def leader(self) -> LeaderInMemory:
        leader = LeaderInMemory(self.platform, self.fleet, self.store)
        recorder = WatermarkRecorder(self.file, leader.topics, leader.parts.events)
        leader.tasks.supervise("watermarks", recorder.run)
        return leader

    async def write(self, leader: LeaderInMemory, rows: int) -> str:
        """Writes messages that stay in the brokers' memory. Returns the segment."""
        await wait_until(lambda: leader.topics.get(TOPIC) is not None and leader.topics[TOPIC].is_stable)
        managed = leader.topics[TOPIC]
        assert managed.topic is not None and managed.layout is not None
        (segment,) = managed.layout.segments
        self.fleet.write(managed.topic.uid, segment, rows)
        return segment.name


@virtual_time
async def test_what_was_lost_with_the_machine_is_reported(tmp_path: Path):
    machine = Machine(tmp_path / "watermarks.json")
    first = machine.leader()
    async with running_leader(first):
        segment = await machine.write(first, 5)
        uid = first.topics[TOPIC].topic.uid  # type: ignore[union-attr]
        await wait_until(lambda: json.loads(machine.recorded()) == {"watermarks": {uid: {segment: 5}}})
    machine.end_brokers()
    machine.start_brokers()
    second = machine.leader()
    async with running_leader(second):
        await wait_until(lambda: TOPIC in second.topics and second.condition(TOPIC, "DataLoss").status == "True")
        assert f"{segment}: offsets 0 to at least 5" in second.condition(TOPIC, "DataLoss").message
        await wait_until(lambda: uid not in json.loads(machine.recorded())["watermarks"], "it is history")


@virtual_time
async def test_what_was_sealed_before_the_machine_ended_is_no_loss(tmp_path: Path):
    machine = Machine(tmp_path / "watermarks.json")
    first = machine.leader()
    async with running_leader(first):
        segment = await machine.write(first, 5)
        await wait_until(lambda: segment in machine.recorded())
        await first.call(
            "ChangeSegments", admin_pb2.ChangeSegmentsRequest(topic="t", action="ROLL", segments=[segment])
        )
        await wait_until(lambda: segment in first.topics[TOPIC].index.sealed, "the segment is sealed with its messages")
    machine.end_brokers()
    machine.start_brokers()
    second = machine.leader()
    async with running_leader(second):
        await wait_until(lambda: TOPIC in second.topics and second.condition(TOPIC, "DataLoss").status == "Unknown")
        message = second.condition(TOPIC, "DataLoss").message
        assert f"{segment}:" not in message, "only of the segment that was open it is not known"


@pytest.mark.parametrize("content", [b"", b"[]", b'{"watermarks": {"u": {"s": "x"}}}'])
@virtual_time
async def test_a_damaged_file_stops_nothing(tmp_path: Path, content: bytes):
    machine = Machine(tmp_path / "watermarks.json")
    machine.file.write_bytes(content)
    leader = machine.leader()
    async with running_leader(leader):
        segment = await machine.write(leader, 3)
        await wait_until(lambda: segment in machine.recorded())
