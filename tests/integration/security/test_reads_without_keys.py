"""Clients of a secure release read old data although the filer's keys are the leader's and the brokers' alone."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pyarrow as pa
import pytest

import smq
from smq.reading import RangeReader, StateLoader, open_topic
from smq.transport.connect_target import resolve_target
from smq.transport.leader_client import LeaderClient
from smq_proto.v1 import topics_pb2
from smq_storage.catalog import paths
from support.data.message_ledger import read_back
from support.processes.cli import smq as run_smq
from support.processes.seaweed import Seaweed, guarded, no_credentials
from support.processes.secure_cluster import SecureCluster
from support.waiting import HANG_GUARD, eventually

__all__ = ["guarded", "no_credentials"]
pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("no_credentials")]

LARGE = b"large " * 20_000


@pytest.fixture(scope="module")
def cluster(guarded: Seaweed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    folder = tmp_path_factory.mktemp("keyless")
    with SecureCluster(folder, guarded.settings(folder.name)) as running:
        yield running


@pytest.fixture
def sent(cluster: SecureCluster, topic: str) -> list[bytes]:
    """The values of a topic of whose segments two are sealed: streamed, by reference, and large."""
    cluster.create(topic, flush={"interval": "100ms"})
    for identity, verb in (("reader", "consume"), ("writer", "produce")):
        cluster.allow(f"{identity}-{topic}", {"topics": [topic], "verbs": [verb]})
    values = [b"%03d" % n for n in range(30)]
    keys = {"filer_access_key": cluster.store.access_key, "filer_secret_key": cluster.store.secret_key}
    with (
        cluster.connect() as administrator,
        cluster.connect_as("writer-" + topic, **keys) as client,
        client.producer(topic, max_inline_bytes=64 << 10) as producer,
    ):
        for begin in range(0, 20, 10):
            for value in values[begin : begin + 9]:
                producer.send(value).result(HANG_GUARD)
            producer.write(pa.table({"value": [values[begin + 9]]}), by_reference=True).result(HANG_GUARD)
            producer.send(LARGE).result(HANG_GUARD)
            roll(administrator, topic)
        for value in values[20:]:
            producer.send(value).result(HANG_GUARD)
    return sorted([*values, LARGE, LARGE])


def roll(administrator: smq.Client, topic: str) -> None:
    (segment,) = administrator.admin().segments(topic)
    administrator.admin().roll(topic, segment.name)

    def is_sealed() -> bool:
        found = administrator.admin().segments(topic)
        return [it.phase for it in found] == ["open"] and found[0].name != segment.name

    eventually(is_sealed, what="the segment was rolled")


def test_all_old_messages_are_read(cluster: SecureCluster, topic: str, sent: list[bytes]) -> None:
    reader = f"reader-{topic}"
    with cluster.connect_as(reader) as client:
        with client.consumer(topic, start="earliest") as consumer:
            assert sorted(v for b in read_back(consumer, 32) for v in b.table.column("value").to_pylist()) == sent
        files = client.files(topic)
        assert files.rows >= 22 and not files.signed
    release = ("--ca-file", str(cluster.ca_file), "--token-file", str(cluster.token_file(reader)))
    ran = run_smq(*release, "consume", topic, "--from", "earliest", "-n", "32", leader=cluster.address)
    assert ran.code == 0 and all(v.decode() in ran.out for v in sent), ran
    listed = run_smq(*release, "files", topic, leader=cluster.address)
    assert listed.code == 0 and "AWS_ACCESS_KEY_ID" in listed.err, listed


def test_a_planned_read_needs_the_files_of_the_release_only(
    cluster: SecureCluster, topic: str, sent: list[bytes]
) -> None:
    token_file = cluster.token_file(f"reader-{topic}")
    opened = open_topic(topic, leader=cluster.address, ca_file=cluster.ca_file, token_file=token_file)
    with StateLoader(opened.location) as loader:
        state = loader.load()
    found: list[bytes] = []
    for name, segment in state.segments().items():
        reader = RangeReader(opened.location)
        for _, table in reader.read(segment, 0, state.ends[name], ["value"], state.replicas(name)):
            found += table.column("value").to_pylist()
    assert sorted(found) == sent


def test_only_files_of_the_own_topic_are_signed_for_whoever_may_consume(
    cluster: SecureCluster, topic: str, sent: list[bytes]
) -> None:
    cluster.create(f"{topic}-other")
    with cluster.connect() as administrator:
        uids = {it.name: it.uid for it in administrator.admin().topics()}
    own, other = (f"default/{topic}", f"default/{topic}-other")
    layout = paths.layout(own, uids[own])

    def sign(identity: str, path: str, of: str = own) -> str:
        target = resolve_target(cluster.address, ca_file=cluster.ca_file, token_file=cluster.token_file(identity))
        leader = LeaderClient([cluster.address], dialer=target.dialer)
        try:
            request = topics_pb2.SignReadsRequest(topic=of, uid=uids[of], paths=[path])
            return str(leader.topics.SignReads(request).urls[0])
        finally:
            leader.close()

    reader, writer = f"reader-{topic}", f"writer-{topic}"
    with urlopen(url := sign(reader, layout)) as answer:
        assert b"segments" in answer.read()
    with pytest.raises(smq.PermissionDenied, match=f"{writer} may not create topics/consume"):
        sign(writer, layout)
    with pytest.raises(smq.PermissionDenied, match=f"{reader} may not create topics/consume"):
        sign(reader, paths.layout(other, uids[other]), other)
    with pytest.raises(smq.InvalidRequest, match="is not a file of"):
        sign(reader, paths.layout(other, uids[other]))
    for request in (
        Request(url, method="DELETE"),
        Request(url, b"changed", method="PUT"),
        url.replace("_layout.json", "_topic.json"),
        url.replace(layout, paths.layout(other, uids[other])),
    ):
        with pytest.raises(HTTPError, match="403"):
            urlopen(request)
    with cluster.connect_as(writer) as client, pytest.raises(smq.PermissionDenied):
        client.consumer(topic)
