"""What people and programs meet at the control API and at the start of a leader: each refusal says what to do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from smq_core import errors
from smq_proto.v1 import admin_pb2, brokers_pb2, groups_pb2, topics_pb2
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL
from smq_storage.catalog.topics import read_current, read_topic
from smq_storage.object_store.store import Store, StoreSettings
from support.fault_injection.store_proxy import StoreFault, StoreProxy
from support.processes.leader import LeaderProcess, error_of, manifest
from support.processes.seaweed import Seaweed
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, seaweed: Seaweed) -> Iterator[LeaderProcess]:
    """One leader for all tests that leave it as it was."""
    leader = LeaderProcess(tmp_path_factory.mktemp("shared"), seaweed.settings("shared"), brokers=2).start()
    leader.wait_for_brokers()
    leader.apply(manifest())
    leader.wait_until_open()
    yield leader
    leader.stop()


def test_nobody_else_may_read_the_files_of_leader_and_brokers(shared: LeaderProcess) -> None:
    of_this_test = set(shared.folder.glob("leader-*.log"))
    found = set(shared.folder.rglob("*")) - of_this_test
    modes = {path.relative_to(shared.folder).as_posix(): path.stat().st_mode for path in found}

    assert modes.keys() >= {"leader.lock", "id"} and sum(path.startswith("logs/") for path in modes) == 2
    assert not {path: oct(mode) for path, mode in modes.items() if mode & 0o077}


REFUSED = [
    ("Locate", pb.LocateRequest(topic="nope"), errors.UnknownTopic, "there is no topic default/nope"),
    ("History", topics_pb2.HistoryRequest(topic="a/b"), errors.UnknownTopic, "there is no topic a/b"),
    ("DeleteTopic", admin_pb2.DeleteTopicRequest(topic="nope"), errors.UnknownTopic, "default/t"),
    ("ApplyTopic", admin_pb2.ApplyTopicRequest(manifest="{"), errors.SpecRejected, "not YAML"),
    (
        "ApplyTopic",
        admin_pb2.ApplyTopicRequest(manifest=manifest(partitions=8)),
        errors.SpecRejected,
        "spec.partitions",
    ),
    ("ApplyTopic", admin_pb2.ApplyTopicRequest(manifest=manifest(key="id")), errors.SpecRejected, "spec.key"),
    (
        "ChangeSegments",
        admin_pb2.ChangeSegmentsRequest(topic="t", action=99, segments=["t-0-64"]),
        errors.InvalidRequest,
        "known here are split",
    ),
    (
        "ChangeSegments",
        admin_pb2.ChangeSegmentsRequest(topic="t", action="SPLIT", segments=["x"]),
        errors.InvalidRequest,
        "no open segment",
    ),
    (
        "ChangeSegments",
        admin_pb2.ChangeSegmentsRequest(topic="t", action="MERGE", segments=["t-0-64"]),
        errors.InvalidRequest,
        "two or more",
    ),
    (
        "ChangeSegments",
        admin_pb2.ChangeSegmentsRequest(topic="t", action="SPLIT", segments=["t-0-64"], boundaries=[64]),
        errors.InvalidRequest,
        "boundary",
    ),
    ("AcceptLoss", admin_pb2.AcceptLossRequest(topic="t", segment="x"), errors.UnknownSegment, "no segment 'x'"),
    (
        "JoinGroup",
        groups_pb2.JoinGroupRequest(topic="t", group="", start="EARLIEST"),
        errors.InvalidRequest,
        "needs a name",
    ),
    (
        "JoinGroup",
        groups_pb2.JoinGroupRequest(topic="t", group="../x", start="EARLIEST"),
        errors.InvalidRequest,
        "group's name",
    ),
    (
        "JoinGroup",
        groups_pb2.JoinGroupRequest(topic="t", group="g", start=99),
        errors.InvalidRequest,
        "earliest, latest, positions",
    ),
    (
        "CommitPositions",
        groups_pb2.CommitPositionsRequest(topic="t", group="never", member="m"),
        errors.StaleGeneration,
        "join",
    ),
    ("Report", brokers_pb2.BrokerReport(protocol=PROTOCOL), errors.InvalidRequest, "name, incarnation and address"),
    ("Report", brokers_pb2.BrokerReport(protocol=99), errors.InvalidRequest, "protocol version 99"),
]


@pytest.mark.parametrize(("method", "request_", "kind", "words"), REFUSED)
def test_every_rejection_carries_its_error(shared: LeaderProcess, method, request_, kind, words):
    with pytest.raises(errors.SmqError) as rejection:
        shared.call(method, request_)
    assert type(rejection.value) is kind
    assert words in rejection.value.message


def test_a_watch_of_no_topic_is_refused_too(shared: LeaderProcess):
    with pytest.raises(grpc.RpcError) as rejection:
        next(shared.method("Watch")(topics_pb2.WatchRequest(topic="nope")))
    assert rejection.value.code() is grpc.StatusCode.NOT_FOUND  # type: ignore[attr-defined]
    assert isinstance(error_of(rejection.value), errors.UnknownTopic)


def test_two_brokers_of_one_name_are_not_mistaken_for_each_other(shared: LeaderProcess):
    name, incarnation = next(iter(shared.alive().items()))
    imposter = brokers_pb2.BrokerReport(protocol=PROTOCOL, broker=name, incarnation="other", address="127.0.0.1:1")
    with pytest.raises(errors.InvalidRequest, match="start this one under a name of its own"):
        shared.call("Report", imposter)
    assert shared.alive()[name] == incarnation


def test_locate_says_where_the_files_are_and_no_secrets(shared: LeaderProcess):
    reply = shared.locate("default/t")
    assert reply.store_url == shared.store.url
    assert dict(reply.store_options) == shared.store.to_public_options()


def test_health_and_metrics(shared: LeaderProcess):
    assert shared.http_get("/healthz") == (200, "ok\n")
    assert shared.http_get("/readyz") == (200, "ok\n")
    status, text = shared.http_get("/metrics")
    assert status == 200
    assert 'smq_leader_brokers{state="alive"} 2.0' in text
    assert 'smq_topic_segments{phase="open",topic="default/t"} 1.0' in text
    assert shared.http_get("/nothing")[0] == 404


def test_a_topic_that_was_deleted_and_made_again_is_another_one(leader: LeaderProcess, store: Store):
    leader.apply(manifest())
    (segment,) = leader.wait_until_open()
    first = leader.locate().topic.uid
    leader.call("DeleteTopic", admin_pb2.DeleteTopicRequest(topic="t"))
    with pytest.raises(errors.UnknownTopic):
        leader.locate()
    assert read_topic(store, "default/t", first) is not None, "deletionPolicy Retain keeps the files"
    leader.apply(manifest(partitions=8))
    second = leader.locate()
    assert second.topic.uid != first and second.topic.partitions == 8
    current = read_current(store, "default/t")
    assert current is not None and current[0] == second.topic.uid

    def released() -> bool:
        held = [s for b in leader.brokers() for s in b.status.segments if s.uid == first]
        return bool(held) and all(s.state == pb.SegmentReport.SEALED for s in held)

    eventually(released, what=f"the brokers release {segment.name}")
    leader.wait_until_open()


def test_a_spec_changed_in_its_file_is_followed_as_far_as_it_may_be(leader: LeaderProcess):
    leader.apply(manifest())
    leader.wait_until_open()
    path = leader.folder / "topics" / "default.t.yaml"
    path.write_text(manifest(segments={"min": 2, "max": 8}))
    eventually(lambda: len(leader.wait_until_open()) == 2, what="segments.min was raised, so it is split")
    path.write_text(manifest(partitions=128))
    eventually(lambda: leader.condition("t", "SpecRejected").status == "True")
    assert "spec.partitions cannot change" in leader.condition("t", "SpecRejected").message
    assert leader.locate().topic.partitions == 64


def test_a_damaged_manifest_does_not_harm_the_others(leader: LeaderProcess):
    folder = leader.folder / "topics"
    folder.joinpath("bad.yaml").write_text("kind: [")
    folder.joinpath("other.yaml").write_text(manifest("other"))
    eventually(lambda: leader.wait_until_open("other"))
    reply = leader.call("ListTopics", admin_pb2.ListTopicsRequest())
    assert isinstance(reply, admin_pb2.TopicList)
    assert [p.where for p in reply.problems] == ["bad.yaml"]
    folder.joinpath("other.yaml").write_text("{")
    eventually(lambda: leader.condition("other", "SpecRejected").status == "True")
    assert "not YAML" in leader.condition("other", "SpecRejected").message
    assert leader.wait_until_open("other"), "the topic continues as before"


# ---- at the start


def test_a_port_that_is_taken(shared: LeaderProcess, new_leader: Callable[..., LeaderProcess]):
    second = new_leader("--listen", shared.address, folder="second")
    assert second.launch().wait(HANG_GUARD) == 2
    assert f"cannot listen on {shared.address}" in second.log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--filer-url", ""], "--filer-url s3://bucket/prefix or SMQ_FILER_URL"),
        (["--filer-url", "http://x"], "must be s3://bucket"),
        (["--listen", "nonsense"], "an address is host:port"),
        (["--brokers=-1"], "--brokers: Input should be greater"),
        (["--dir", "/proc/nothing"], "cannot make the folder"),
    ],
)
def test_flags_that_cannot_be(new_leader: Callable[..., LeaderProcess], flags, words):
    leader = new_leader(*flags)
    assert leader.launch().wait(HANG_GUARD) == 2
    assert words in leader.log.read_text()


@pytest.mark.slow
def test_a_filer_that_is_away_at_the_start_is_waited_for(tmp_path: Path, seaweed: Seaweed, prefix: str):
    with StoreProxy(seaweed.endpoint) as proxy:
        away = proxy.add(StoreFault.ERROR_500, method=None, times=None)
        settings = replace(seaweed.settings(prefix, timeout=3.0), endpoint=proxy.endpoint)
        leader = LeaderProcess(tmp_path, settings, brokers=1)
        try:
            process = leader.launch()
            reply = eventually(lambda: leader.events("store.unavailable"))
            assert "--filer-endpoint" in reply[0]["advice"]
            assert process.poll() is None
            away.times = 0
            eventually(lambda: leader.events("leader.ready"), what="it leads as soon as the filer is back")
        finally:
            leader.stop()


def test_an_unfit_store_is_refused(tmp_path: Path, seaweed: Seaweed, prefix: str):
    with StoreProxy(seaweed.endpoint) as proxy:
        proxy.add(StoreFault.IGNORE_CONDITIONS, times=None)
        settings = replace(seaweed.settings(prefix, timeout=3.0), endpoint=proxy.endpoint)
        leader = LeaderProcess(tmp_path, settings, brokers=1)
        try:
            assert leader.launch().wait(HANG_GUARD) == 2
            assert "lose messages" in leader.log.read_text()
            assert not list((tmp_path / "brokers").glob("*.json")), "no broker was started on it"
        finally:
            leader.stop()


def test_wrong_credentials_are_named(tmp_path: Path, seaweed: Seaweed, prefix: str):
    with StoreProxy(seaweed.endpoint) as proxy:
        proxy.add(StoreFault.FORBIDDEN_403, method=None, times=None)
        settings: StoreSettings = replace(seaweed.settings(prefix, timeout=3.0), endpoint=proxy.endpoint)
        leader = LeaderProcess(tmp_path, settings, brokers=1)
        try:
            leader.launch()
            reply = eventually(lambda: leader.events("store.unavailable"))
            assert reply[0]["error"] == "StoreDenied"
            assert "AWS_" in json.dumps(reply[0])
        finally:
            leader.stop()
