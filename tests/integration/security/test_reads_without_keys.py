"""Clients of a secure release read old data and write files, although only leader and brokers have the filer's keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pyarrow as pa
import pytest

import smq
from smq.reading import RangeReader, StateLoader, open_topic
from smq.transport.connect_target import resolve_target
from smq.transport.leader_client import LeaderClient
from smq_core.errors import StoreDenied
from smq_proto.v1 import topics_pb2
from smq_storage.catalog import paths
from smq_storage.object_store.store import StoreSettings
from smq_storage.verification.topic_files import TopicFiles
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
    with SecureCluster(folder, guarded.settings(folder.name), more=("--filer-session-role=own",)) as running:
        yield running


@pytest.fixture
def sent(cluster: SecureCluster, topic: str) -> list[bytes]:
    """The values of a topic of whose segments two are sealed: streamed, by reference, and large."""
    cluster.create(topic, flush={"interval": "100ms"})
    for identity, verb in (("reader", "consume"), ("writer", "produce")):
        cluster.allow(f"{identity}-{topic}", {"topics": [topic], "verbs": [verb]})
    values = [b"%03d" % n for n in range(30)]
    with (
        cluster.connect() as administrator,
        cluster.connect_as("writer-" + topic) as client,
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


def test_a_topic_is_verified(cluster: SecureCluster, topic: str, sent: list[bytes]) -> None:
    reader = f"reader-{topic}"
    release = ("--ca-file", str(cluster.ca_file), "--token-file", str(cluster.token_file(reader)))
    ran = run_smq(*release, "topic", "verify", topic, "--rows", leader=cluster.address)
    assert ran.code == 0 and re.fullmatch(r"0 problems in 3 segments, \d+ files, 32 messages\n", ran.out), ran
    with cluster.connect_as(reader) as client:
        files = client.files(topic)
        upload = next(it for it in files if it.kind == "upload")
        chunk = next(it for it in files if it.kind == "chunk" and it.segment != upload.segment)
        for file in (upload, chunk):
            cluster.store.open().delete(file.url.removeprefix(f"{cluster.store.url}/"))
        checked = client.topic_files(topic)
        missing_upload, missing_chunk = sorted(checked.problems(), key=lambda it: not paths.is_upload(it.path))
    assert missing_upload.path in upload.url and "no listing was made" in missing_upload.what
    assert missing_chunk.path in chunk.url and "is missing" in missing_chunk.what
    with cluster.connect_as(f"writer-{topic}") as client, pytest.raises(smq.PermissionDenied):
        list(client.topic_files(topic).problems())


def test_a_compaction_says_that_it_takes_a_key(cluster: SecureCluster, topic: str) -> None:
    cluster.create(topic)
    cluster.allow(f"reader-{topic}", {"topics": [topic], "verbs": ["consume", "administer"]})
    release = ("--ca-file", str(cluster.ca_file), "--token-file", str(cluster.token_file(f"reader-{topic}")))
    ran = run_smq(*release, "topic", "compact", topic, leader=cluster.address)
    assert ran.code == 1 and "the leader signs no URL. Let the Job of the chart do it" in ran.err, ran
    assert "AWS_ACCESS_KEY_ID" in ran.err


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


def test_temporary_keys_read_the_files_of_one_topic(cluster: SecureCluster, topic: str, sent: list[bytes]) -> None:
    reader = f"reader-{topic}"
    cluster.create(f"{topic}-other")
    with cluster.connect() as administrator:
        uids = {it.name: it.uid for it in administrator.admin().topics()}
    with cluster.connect_as(reader) as client:
        keys = client.admin().filer_keys(topic, lifetime=timedelta(minutes=15))
        with pytest.raises(smq.InvalidRequest, match="900 to 3600 seconds, not 60"):
            client.admin().filer_keys(topic, lifetime=timedelta(minutes=1))
        with pytest.raises(smq.PermissionDenied, match=f"{reader} may not create topics/consume"):
            client.admin().filer_keys(f"{topic}-other")
        files = [it.url.removeprefix(f"{keys.url}/") for it in client.files(topic)]
    assert timedelta(minutes=14) < keys.expires_at - datetime.now(UTC) <= timedelta(minutes=15)
    store = StoreSettings(
        url=keys.url,
        endpoint=keys.endpoint,
        access_key=keys.access_key,
        secret_key=keys.secret_key,
        session_token=keys.session_token,
    ).open()
    own, other = (paths.topic_folder(f"default/{it}", uids[f"default/{it}"]) for it in (topic, f"{topic}-other"))
    assert all(store.head(path).size for path in files) and any(paths.is_upload(path) for path in files)
    assert {it.path for it in store.list(own)} >= {it for it in files if not paths.is_upload(it)}
    assert not list(TopicFiles(store, f"default/{topic}", rows=True).problems())
    for refused in (
        lambda: store.get(f"{other}/_layout.json"),
        lambda: list(store.list(other)),
        lambda: list(store.list("")),
        lambda: store.put(f"{own}/_layout.json", b"{}"),
        lambda: store.delete(f"{own}/_layout.json"),
    ):
        with pytest.raises(StoreDenied):
            refused()
    release = ("--ca-file", str(cluster.ca_file), "--token-file", str(cluster.token_file(reader)))
    ran = run_smq(*release, "auth", "filer-keys", topic, "--duration", "15m", leader=cluster.address)
    assert ran.code == 0 and [it.partition("=")[0] for it in ran.lines] == [
        *("export AWS_ACCESS_KEY_ID", "export AWS_SECRET_ACCESS_KEY", "export AWS_SESSION_TOKEN"),
        "export AWS_ENDPOINT_URL_S3",
    ]
