"""Clients of a secure release: what they may do works as in an open one, and what they may not is denied at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import smq
from smq.reading import RangeReader, StateLoader, open_topic
from support.processes.secure_cluster import SecureCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration
# Long before any timeout of the library.
AT_ONCE_SECONDS = 8.0


@pytest.fixture
def app(cluster: SecureCluster, topic: str) -> str:
    """An identity that may write and read one topic, which is there."""
    cluster.create(topic)
    identity = f"app-{topic}"
    cluster.token_file(identity)
    cluster.allow(
        identity,
        {"topics": [topic], "verbs": ["produce", "consume", "get"], "consumerGroups": ["team.*"]},
    )
    return identity


def read(consumer: smq.Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        batch = consumer.poll(HANG_GUARD)
        assert batch is not None, f"only {len(found)} messages came"
        found += batch.table.column("value").to_pylist()
    return found


def test_what_an_identity_may_do_works_as_in_an_open_release(cluster: SecureCluster, topic: str, app: str) -> None:
    with cluster.connect_as(app) as client:
        with client.producer(topic, producer_id="one") as producer:
            producer.send(b"a", key=b"k").result(HANG_GUARD)
            producer.write(pa.table({"value": pa.array([b"b", b"c"], pa.binary())})).result(HANG_GUARD)
            rows = pa.table({"value": pa.array([b"d"], pa.binary())})
            producer.write(rows, by_reference=True).result(HANG_GUARD)
        client.publish_atomically(topic, app="app", version=0, table=pa.table({"value": pa.array([b"e"], pa.binary())}))
        with client.consumer(topic, group="team.report", start="earliest") as consumer:
            assert sorted(read(consumer, 5)) == [b"a", b"b", b"c", b"d", b"e"]
            consumer.commit()
            eventually(lambda: consumer.poll(0.05) is None and consumer.at_end())
        with client.consumer(topic, start="earliest") as consumer:
            read(consumer, 5)
            consumer.seek(dict.fromkeys(consumer.positions, 0))
            assert len(read(consumer, 5)) == 5
        me = client.admin().whoami()
        assert (me.identity, me.method) == (app, "StaticToken")
        assert client.admin().can_i("produce", topic).allowed
        assert not client.admin().can_i("delete", topic).allowed


def test_a_split_is_followed_over_new_connections(cluster: SecureCluster, topic: str, app: str) -> None:
    with cluster.connect_as(app) as client, client.producer(topic) as producer:
        producer.send(b"0", key=b"0").result(HANG_GUARD)
        with cluster.connect() as administrator:
            (segment,) = administrator.admin().segments(topic)
            administrator.admin().split(topic, segment.name)
            eventually(lambda: sum(s.phase == "open" for s in administrator.admin().segments(topic)) == 2)
        deliveries = [producer.send(b"%d" % n, key=b"%d" % n) for n in range(1, 50)]
        for delivery in deliveries:
            delivery.result(HANG_GUARD)
        with client.consumer(topic, start="earliest") as consumer:
            assert sorted(read(consumer, 50)) == sorted(b"%d" % n for n in range(50))


def test_a_planned_read_logs_in_by_itself(cluster: SecureCluster, topic: str, app: str) -> None:
    with cluster.connect_as(app) as client, client.producer(topic) as producer:
        producer.send(b"newest").result(HANG_GUARD)
    opened = open_topic(topic, leader=cluster.address, ca_file=cluster.ca_file, token_file=cluster.token_file(app))
    with StateLoader(opened.location) as loader:
        state = loader.load()
    (name, segment), end = next(iter(state.segments().items())), next(iter(state.ends.values()))
    assert end == 1, "a broker has said how far it reaches"
    reader = RangeReader(opened.location)
    tables = [table for _, table in reader.read(segment, 0, end, ["value"], state.replicas(name), flushed=0)]
    assert pa.concat_tables(tables).column("value").to_pylist() == [b"newest"]


@pytest.mark.slow
def test_running_clients_need_no_leader(cluster: SecureCluster, topic: str, app: str) -> None:
    with (
        cluster.connect_as(app) as client,
        client.producer(topic) as producer,
        client.consumer(topic, start="earliest") as consumer,
    ):
        producer.send(b"before").result(HANG_GUARD)
        assert read(consumer, 1) == [b"before"]
        cluster.kill_leader()
        try:
            producer.send(b"after").result(HANG_GUARD)
            assert read(consumer, 1) == [b"after"]
            with client.producer(topic) as another:
                another.send(b"more").result(HANG_GUARD)
            assert read(consumer, 1) == [b"more"]
        finally:
            cluster.start()


def test_a_wrong_token_is_known_at_once(cluster: SecureCluster, topic: str, app: str, tmp_path: Path) -> None:
    wrong = tmp_path / "token"
    wrong.write_text("nobody-has-this-one")
    calls: list[Callable[[smq.Client], object]] = [
        lambda client: client.admin().topics(),
        lambda client: client.admin().whoami(),
        lambda client: client.producer(topic),
        lambda client: client.consumer(topic),
        lambda client: client.consumer(topic, group="team.a"),
    ]
    for call in calls:
        with smq.connect(cluster.address, ca_file=cluster.ca_file, token_file=wrong) as client:
            began = time.monotonic()
            with pytest.raises(smq.Unauthenticated) as caught:
                call(client)
            assert time.monotonic() - began < AT_ONCE_SECONDS
            assert "nobody-has-this-one" not in str(caught.value)


def test_a_right_that_is_missing_is_known_at_once(cluster: SecureCluster, topic: str, app: str) -> None:
    cluster.allow(app, {"topics": [topic], "verbs": ["consume"]})
    with cluster.connect_as(app) as client:
        eventually(lambda: not client.admin().can_i("produce", topic).allowed)
        calls: list[tuple[Callable[[], object], str]] = [
            (lambda: client.producer(topic), "produce"),
            (lambda: client.consumer(topic, group="team.a"), "team.a"),
            (lambda: client.admin().delete(topic), "delete"),
        ]
        for call, words in calls:
            began = time.monotonic()
            with pytest.raises(smq.PermissionDenied, match=words):
                call()
            assert time.monotonic() - began < AT_ONCE_SECONDS
        client.consumer(topic).close()
    stranger = cluster.connect_as(f"{app}-stranger")
    with stranger:
        for use, right in ((stranger.consumer, "consume"), (stranger.producer, "produce")):
            with pytest.raises(smq.PermissionDenied, match=f"{app}-stranger may not create topics/{right}") as denied:
                use(topic)
            assert denied.value.access == f'create topics/{right} "{topic}" in namespace "default"'
        with pytest.raises(smq.PermissionDenied, match=r"may not create topics/produce .* or create topics/consume"):
            stranger.admin().segments(topic)


def test_a_client_without_security_learns_what_to_do(cluster: SecureCluster) -> None:
    with smq.connect(cluster.address) as client, pytest.raises(smq.InvalidRequest, match=r"speaks TLS.*pass ca_file"):
        client.admin().topics()


def test_a_client_outside_is_encrypted_through_the_relay(cluster: SecureCluster, topic: str, app: str) -> None:
    relay = eventually(lambda: cluster.relay_address(next(iter(cluster.pids()))), what="the relay of a broker")
    files = {"ca_file": str(cluster.ca_file), "token_file": str(cluster.token_file(app))}
    with smq.connect(via=relay, **files) as client:  # type: ignore[arg-type]
        with client.producer(topic) as producer:
            producer.send(b"a").result(HANG_GUARD)
        with client.consumer(topic, start="earliest") as consumer:
            assert read(consumer, 1) == [b"a"]
