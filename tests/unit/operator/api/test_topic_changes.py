"""AlterTopic: what it checks, what it writes, and when it returns."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from greenlet import getcurrent, greenlet

from smq_core.model.entities import Column, TopicSchema
from smq_operator.api import admin
from smq_proto.v1 import admin_pb2
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import columns_to_pb, schema_from_pb
from smq_storage.object_store.store import open_store
from smq_storage.topic_manifests import parser
from smq_storage.topic_manifests.fields import MAX_COLUMNS, ManifestModel
from smq_storage.topic_manifests.parser import parse_manifest
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, RpcAborted, running_leader
from support.processes.leader import manifest
from support.sim.engine.virtual_threads import VirtualThread
from support.virtual_time import virtual_time
from support.waiting import wait_until

TOPIC = "default/t"
ID, NOTE = Column("id", "int32"), Column("note", "string", nullable=True)
WIDE = Column("id", "int64")


@asynccontextmanager
async def leader_of(*columns: Column, **spec: object) -> AsyncIterator[tuple[LeaderInMemory, FakePlatform]]:
    """A leader with one topic of these columns, which has its first layout."""
    store = open_store("memory://")
    fleet, platform = FakeFleet(store), FakePlatform()
    for name in "abc":
        fleet.add(name)
    platform.add_topic(TOPIC, schema=columns, **spec)
    leader = LeaderInMemory(platform, fleet, store)
    async with running_leader(leader):
        await wait_until(lambda: TOPIC in leader.topics and leader.topics[TOPIC].layout)
        yield leader, platform


async def alter(leader: LeaderInMemory, version: int, *columns: Column, preview: bool = False) -> TopicSchema:
    request = admin_pb2.AlterTopicRequest(
        topic="t", columns=columns_to_pb(columns), schema_version=version, preview=preview
    )
    reply = await leader.call("AlterTopic", request)
    assert isinstance(reply, admin_pb2.AlterTopicReply)
    return schema_from_pb(reply.schema)


@virtual_time
async def test_the_layout_has_the_new_version_when_it_returns() -> None:
    async with leader_of(ID, NOTE) as (leader, platform):
        assert await alter(leader, 0, WIDE) == TopicSchema(1, (WIDE,), ("note",))
        layout = leader.topics[TOPIC].layout
        assert layout is not None and layout.schemas[-1] == TopicSchema(1, (WIDE,), ("note",))
        assert {s.schema_version for s in layout.writable_segments} == {1}
        assert platform.topics[TOPIC].spec.schema == (WIDE,)


@virtual_time
async def test_a_preview_and_the_same_columns_change_nothing() -> None:
    async with leader_of(ID, NOTE) as (leader, platform):
        assert (await alter(leader, 0, WIDE, NOTE, preview=True)).version == 1
        assert (await alter(leader, 0, NOTE, ID)).version == 0
        assert platform.topics[TOPIC].spec.schema == (ID, NOTE)


@virtual_time
async def test_what_is_not_allowed_is_refused_by_column_and_changes_nothing() -> None:
    async with leader_of(ID, NOTE) as (leader, platform):
        with pytest.raises(RpcAborted) as caught:
            await alter(leader, 0, Column("id", "string"), Column("gate", "uint8"))
        assert "'id' cannot change from int32 to string" in str(caught.value)
        assert "'gate' is new" in str(caught.value)
        with pytest.raises(RpcAborted, match="complex64"):
            await alter(leader, 0, ID, NOTE, Column("gate", "complex64", nullable=True))
        with pytest.raises(RpcAborted, match="schema version 0, not 3"):
            await alter(leader, 3, WIDE, NOTE)
        assert platform.topics[TOPIC].spec.schema == (ID, NOTE)


@virtual_time
async def test_a_topic_without_a_schema_stays_without() -> None:
    async with leader_of() as (leader, _):
        with pytest.raises(RpcAborted, match="was created without a schema"):
            await alter(leader, 0, ID)


async def set_fields(leader: LeaderInMemory, fields: object, preview: bool = False) -> list[tuple[str, str]]:
    request = admin_pb2.AlterTopicRequest(topic="t", settings=json.dumps(fields), preview=preview)
    reply = await leader.call("AlterTopic", request)
    assert isinstance(reply, admin_pb2.AlterTopicReply)
    return [(change.text, change.risk) for change in reply.changes]


@virtual_time
async def test_settings_change_alone_and_all_others_stay() -> None:
    async with leader_of(retention_bytes=1 << 40, min_segments=2) as (leader, platform):
        before = platform.topics[TOPIC].spec
        changed = [("retention.age: 7d → 3d", "messages older than 3d are removed"), ("segments.max: 16 → 8", "")]
        patch = {"retention": {"age": "3d"}, "segments": {"max": 8}}
        assert sorted(await set_fields(leader, patch, preview=True)) == changed
        assert platform.topics[TOPIC].spec == before, "a preview changes nothing"
        assert sorted(await set_fields(leader, patch)) == changed
        assert platform.topics[TOPIC].spec == replace(before, retention_age=3 * 86_400_000_000, max_segments=8)
        assert leader.topics[TOPIC].topic.spec.retention_age == 3 * 86_400_000_000, "the leader has it when it returns"
        assert await set_fields(leader, patch) == [], "they are the same"
        assert await set_fields(leader, {"retention": {"age": None}}) == [("retention.age: 3d → 7d (default)", "")]


@virtual_time
@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"retention": {"age": "3 weeks"}}, r"spec\.retention\.age: must be a duration"),
        ({"retention": {"agee": "3d"}}, r"spec\.retention\.agee: there is no such field"),
        ({"retention": {"agee": None}}, r"spec\.retention\.agee: there is no such field"),
        ({"replicas": 1}, r"spec\.replicas: must be at least 2"),
        ({"partitions": 8, "segments": {"max": 4}}, r"spec\.partitions cannot change"),
        ({"schema": []}, "must be a JSON object of fields"),
        (["retention"], "must be a JSON object of fields"),
    ],
)
async def test_a_setting_that_cannot_be_is_refused_and_changes_nothing(fields: object, why: str) -> None:
    async with leader_of() as (leader, platform):
        before = platform.topics[TOPIC]
        with pytest.raises(RpcAborted, match=why):
            await set_fields(leader, fields)
        assert platform.topics[TOPIC] == before


@virtual_time
async def test_a_request_that_is_too_large_is_refused_before_its_columns_are_read() -> None:
    async with leader_of(ID) as (leader, _):
        for count, why in ((MAX_COLUMNS + 1, "at most 400"), (100_000, "bytes, and")):
            request = admin_pb2.AlterTopicRequest(topic="t", columns=[pb.Column()] * count)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(admin, "columns_from_pb", lambda columns: pytest.fail("it was converted"))
                with pytest.raises(RpcAborted, match=why):
                    await leader.call("AlterTopic", request)


@virtual_time
async def test_a_change_of_a_rejected_spec_is_not_answered_as_done() -> None:
    async with leader_of() as (leader, platform):
        spec = platform.topics[TOPIC].spec
        platform.topics[TOPIC] = replace(platform.topics[TOPIC], spec=replace(spec, partitions=32))
        leader.sync.sync()
        await wait_until(lambda: leader.topics[TOPIC].rejection)
        with pytest.raises(RpcAborted, match=r"is not in force: .*partitions"):
            await set_fields(leader, {"retention": {"age": "3d"}})


@virtual_time
async def test_an_exported_manifest_is_the_topic_and_applies_without_a_change() -> None:
    async with leader_of(ID, NOTE) as (leader, platform):
        await leader.call("PauseScaling", admin_pb2.PauseScalingRequest(topic="t", paused=True))
        exported = await leader.call("ExportTopic", admin_pb2.ExportTopicRequest(topic="t"))
        assert isinstance(exported, admin_pb2.ExportTopicReply)
        manifest = parse_manifest(exported.manifest)
        assert (manifest.full_name, manifest.spec, manifest.paused) == (TOPIC, platform.topics[TOPIC].spec, True)
        applied = await leader.call("ApplyTopic", admin_pb2.ApplyTopicRequest(manifest=exported.manifest, preview=True))
        assert isinstance(applied, admin_pb2.ApplyTopicReply)
        assert not applied.changes and applied.before == applied.after == exported.manifest


@virtual_time
async def test_a_manifest_that_leaves_a_field_out_says_that_it_is_reset() -> None:
    async with leader_of() as (leader, platform):
        await set_fields(leader, {"retention": {"age": "90d"}})
        kept = platform.topics[TOPIC].spec
        text = "{apiVersion: seaweedmq.io/v1alpha1, kind: Topic, metadata: {name: t}, spec: {partitions: 16}}"
        request = admin_pb2.ApplyTopicRequest(manifest=text, preview=True)
        planned = await leader.call("ApplyTopic", request)
        assert isinstance(planned, admin_pb2.ApplyTopicReply)
        assert [(it.text, it.risk) for it in planned.changes] == [
            ("retention.age: 90d → 7d (default)", "messages older than 7d are removed")
        ]
        assert platform.topics[TOPIC].spec == kept, "a preview changes nothing"


@pytest.mark.parametrize("method", ["ApplyTopic", "AlterTopic", "ExportTopic"])
@virtual_time
async def test_no_request_checks_or_writes_a_manifest_on_the_loop(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 400 columns takes most of a second, in which the leader would answer nobody."""
    threads: list[greenlet] = []

    def recorded(call: Callable[..., object]) -> Callable[..., object]:
        def recording(*args: object) -> object:
            threads.append(getcurrent())
            return call(*args)

        return recording

    request: object = {
        "ApplyTopic": admin_pb2.ApplyTopicRequest(manifest=manifest("t", partitions=16, replicas=3), preview=True),
        "AlterTopic": admin_pb2.AlterTopicRequest(topic="t", settings=json.dumps({"replicas": 3}), preview=True),
        "ExportTopic": admin_pb2.ExportTopicRequest(topic="t"),
    }[method]
    async with leader_of() as (leader, _):
        monkeypatch.setattr(ManifestModel, "model_validate", recorded(ManifestModel.model_validate))
        monkeypatch.setattr(parser, "_model", recorded(parser._model))
        await leader.call(method, request)
    assert threads and all(isinstance(it, VirtualThread) for it in threads)
