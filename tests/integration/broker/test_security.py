"""Secure brokers as processes: who gets in, who may do what, and what goes on while certificates are renewed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pyarrow.flight as fl
import pytest
from google.protobuf.empty_pb2 import Empty

from smq_core.access.peers import LEADER_SERVER_NAME, Role
from smq_core.access.rights import Right
from smq_core.errors import GrantMissing, PermissionDenied, SmqError, Unauthenticated
from smq_core.model.entities import Segment, Topic
from smq_proto.flight import call, flight_errors
from smq_proto.v1 import admin_pb2, auth_pb2
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1.auth_pb2_grpc import AuthStub
from smq_proto.wire import PROTOCOL, segment_to_pb, topic_to_pb
from smq_storage.catalog.topics import put_current, put_topic
from support.data.raw_flight import RawProducer, RawReader, rows
from support.processes.broker import BrokerProcess, BrokerProcesses, make_segment, make_topic
from support.processes.secure_leader_stub import Release, SecureLeader, present
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration

SHORT_LIFE_SECONDS = 4.0
SWAPS = 4


@pytest.fixture
def release(tmp_path: Path) -> Release:
    return Release(tmp_path / "release")


class SecureCluster:
    """Two brokers that have logged in at a leader stub, and a Replicated segment of theirs."""

    def __init__(self, brokers: BrokerProcesses, leader: SecureLeader, *flags: str) -> None:
        self.leader, self.release = leader, leader.release
        started = brokers.start("b1", "b2", flags=["--leader", leader.address, *self.release.flags, *flags])
        self.primary, self.follower = started
        self.topic: Topic = make_topic("travel/flights")
        store = brokers.store.open()
        put_topic(store, self.topic)
        put_current(store, self.topic.name, self.topic.uid, etag=None)
        for broker in started:
            broker.flight = self.connect(broker, Role.LEADER, "leader-1")
        self.segment = self.open(self.topic)

    def open(self, topic: Topic) -> Segment:
        segment = make_segment(topic, self.primary.replica, self.follower.replica)
        self.follower.open(topic, segment)
        self.primary.open(topic, segment)
        return segment

    def connect(self, broker: BrokerProcess, role: Role = Role.CLIENT, name: str = "ada") -> fl.FlightClient:
        return self.release.connect(broker.address, broker.incarnation, self.release.certificate(role, name))

    def client(self, broker: BrokerProcess, *rights: Right, name: str = "ada") -> fl.FlightClient:
        """A client that has presented grants of these rights."""
        client = self.connect(broker, name=name)
        present(client, *(self.release.grant(name, self.topic, right) for right in rights))
        return client

    def produce(self, client: fl.FlightClient, segment: Segment | None = None) -> RawProducer:
        return RawProducer(self.primary.address, self.topic, segment or self.segment, name="p@ada", client=client)

    def read(self, broker: BrokerProcess, client: fl.FlightClient) -> RawReader:
        return RawReader(broker.address, self.topic, self.segment, incarnation=broker.incarnation, client=client)


@pytest.fixture
def leader(release: Release) -> Iterator[SecureLeader]:
    with SecureLeader(release) as made:
        yield made


@pytest.fixture
def cluster(brokers: BrokerProcesses, leader: SecureLeader) -> SecureCluster:
    return SecureCluster(brokers, leader)


@pytest.mark.slow
def test_a_client_with_grants_publishes_and_reads_what_was_replicated(cluster: SecureCluster) -> None:
    producer = cluster.produce(cluster.client(cluster.primary, Right.PRODUCE))
    assert producer.wait_acked(producer.send(rows([b"a", b"b"]))) == 0
    reader = cluster.read(cluster.follower, cluster.client(cluster.follower, Right.CONSUME))
    assert reader.until(2)["value"].to_pylist() == [b"a", b"b"]
    status = pb.BrokerStatus.FromString(
        call(cluster.client(cluster.follower, Right.CONSUME), "status", Empty(), timeout=HANG_GUARD)
    )
    assert [it.segment for it in status.segments] == [cluster.segment.name]
    producer.close()
    reader.cancel()


def attempts(cluster: SecureCluster, client: fl.FlightClient) -> dict[str, Callable[[], object]]:
    """Each thing that can be tried at the follower, which hosts the segment."""
    broker, topic, segment = cluster.follower, cluster.topic, cluster.segment
    replicas = {"topic": topic.name, "uid": topic.uid, "segment": segment.name}
    requests = {
        "open": pb.OpenSegment(
            protocol=PROTOCOL,
            topic=topic_to_pb(topic),
            segment=segment_to_pb(segment),
            incarnation=broker.incarnation,
        ),
        "seal": pb.SealSegment(protocol=PROTOCOL, incarnation=broker.incarnation, reason="test", **replicas),
        "segments": pb.HostedSegmentsRequest(uid=topic.uid),
        "outcome": pb.OutcomeRequest(**replicas),
        "claim": pb.ClaimProducer(topic=topic.name, uid=topic.uid, producer="p", instance="i"),
        "locate": pb.LocateRequest(topic=topic.name),
    }

    def replicate() -> None:
        replica = pb.ReplicaHello(
            primary_incarnation=cluster.primary.incarnation, connection="mine", lane=pb.LANE_SMALL
        )
        hello = pb.PutOpen(protocol=PROTOCOL, incarnation=broker.incarnation, replica=replica)
        with flight_errors():
            writer, reader = client.do_put(
                fl.FlightDescriptor.for_command(hello.SerializeToString()), rows([b"x"]).schema.empty_table().schema
            )
            while reader.read() is not None:
                pass
            writer.close()

    def read() -> None:
        with flight_errors():
            cluster.read(broker, client).next()

    def produce() -> None:
        producer = RawProducer(broker.address, topic, segment, incarnation=broker.incarnation, client=client)
        error = producer.wait_error()
        raise error

    found: dict[str, Callable[[], object]] = {
        name: lambda name=name, request=request: call(client, name, request, timeout=HANG_GUARD)  # type: ignore[misc]
        for name, request in requests.items()
    }
    return found | {"replica": replicate, "tail": read, "producers": produce}


@pytest.mark.slow
def test_each_call_of_each_role_without_a_right_is_refused_and_changes_nothing(cluster: SecureCluster) -> None:
    refused: dict[str, dict[str, type[SmqError]]] = {
        "client": {
            **dict.fromkeys(("open", "seal", "segments", "replica"), PermissionDenied),
            **dict.fromkeys(("outcome", "claim", "locate", "tail", "producers"), GrantMissing),
        },
        "broker": dict.fromkeys(
            ("open", "seal", "segments", "outcome", "claim", "locate", "tail", "producers", "replica"),
            PermissionDenied,
        ),
    }
    clients = {
        "client": cluster.connect(cluster.follower),
        "broker": cluster.connect(cluster.follower, Role.BROKER, "i-of-another-broker"),
    }
    before = cluster.follower.report(cluster.segment)
    for role, expected in refused.items():
        for name, attempt in attempts(cluster, clients[role]).items():
            with pytest.raises(SmqError) as caught:
                attempt()
            assert type(caught.value) is expected[name], (role, name, caught.value)
    after = cluster.follower.report(cluster.segment)
    assert (after.end, after.state) == (before.end, before.state) == (0, pb.SegmentReport.OPEN)
    metrics = cluster.follower.get("/metrics")[1]
    assert 'smq_broker_access_denied_total{reason="GrantMissing"}' in metrics
    denied = cluster.follower.events("access.denied")
    assert {"'client ada'", "'broker i-of-another-broker'"} == {line["who"] for line in denied}
    for secret in (cluster.release.token, "PRIVATE KEY"):
        assert secret not in cluster.follower.log.read_text()


@pytest.mark.slow
def test_strangers_do_not_get_past_the_handshake(cluster: SecureCluster, tmp_path: Path, release: Release) -> None:
    broker, other = cluster.primary, Release(tmp_path / "other", "release-2")
    certificate = other.certificate(Role.LEADER, "leader-1")
    mixed = fl.connect(
        f"grpc+tls://{broker.address}",
        tls_root_certs=release.authority.roots,
        override_hostname=f"{broker.incarnation}.broker.smq.internal",
        cert_chain=certificate.chain,
        private_key=certificate.key,
    )
    anonymous = fl.connect(
        f"grpc+tls://{broker.address}",
        tls_root_certs=release.authority.roots,
        override_hostname=f"{broker.incarnation}.broker.smq.internal",
    )
    plain = fl.connect(f"grpc://{broker.address}")
    for client in (mixed, anonymous, plain):
        with pytest.raises(fl.FlightUnavailableError):
            list(client.do_action("status", fl.FlightCallOptions(timeout=HANG_GUARD)))
    expired = release.certificate(Role.CLIENT, "ada", seconds=1.0)
    late = release.connect(broker.address, broker.incarnation, expired)
    eventually(lambda: time.time() > expired.expires_at + 1)
    with pytest.raises(fl.FlightUnavailableError):
        list(late.do_action("status", fl.FlightCallOptions(timeout=HANG_GUARD)))


@pytest.mark.slow
def test_a_broker_says_why_it_is_not_ready_before_a_leader_lets_it_serve(
    brokers: BrokerProcesses, release: Release, leader: SecureLeader
) -> None:
    leader.rejection = PermissionDenied("this Pod is none of this release")
    (one,) = brokers.start("b1", flags=["--leader", leader.address, *release.flags], wait=False)
    failed = eventually(lambda: one.event("login.failed"))
    assert "this Pod is none of this release" in failed["error"]
    one.http = failed["http"]
    assert one.get("/readyz") == (503, "the leader refuses this broker: this Pod is none of this release\n")
    leader.rejection = None
    one.wait_ready()
    eventually(lambda: one.get("/readyz") == (200, "ok\n"), what="it is ready")
    (two,) = brokers.start("b2", flags=["--leader", "127.0.0.1:1", *release.flags], wait=False)
    eventually(lambda: "does not answer" in two.event("login.failed")["error"])
    two.terminate()
    assert two.wait() == 0


@pytest.mark.slow
def test_nothing_is_lost_while_certificates_are_renewed_under_load(brokers: BrokerProcesses, release: Release) -> None:
    with SecureLeader(release, lifetime_seconds=SHORT_LIFE_SECONDS) as leader:
        cluster = SecureCluster(brokers, leader)
        broker = cluster.primary
        producer = cluster.produce(cluster.client(broker, Right.PRODUCE))
        producer.wait_opened()
        reader = cluster.read(broker, cluster.client(broker, Right.CONSUME))
        stop = threading.Event()
        failures, gaps, stalls = 0, [0.0], [0.0]

        def call_with_new_connections() -> None:
            nonlocal failures
            failing_since: float | None = None
            while not stop.is_set():
                try:
                    with cluster.connect(broker) as client:
                        call(client, "status", Empty(), timeout=HANG_GUARD)
                except SmqError:
                    failures += 1
                    failing_since = failing_since or time.monotonic()
                else:
                    if failing_since is not None:
                        gaps.append(time.monotonic() - failing_since)
                    failing_since = None

        def publish() -> None:
            while not stop.is_set():
                began = time.monotonic()
                producer.wait_acked(producer.send(rows([b"v"])))
                stalls.append(time.monotonic() - began)

        threads = [threading.Thread(target=run, daemon=True) for run in (call_with_new_connections, publish)]
        for thread in threads:
            thread.start()
        for it in (broker, cluster.follower):
            eventually(lambda it=it: len(it.events("server.replaced")) >= SWAPS, what="swaps")  # type: ignore[misc]
        stop.set()
        for thread in threads:
            thread.join(HANG_GUARD)
        sent = producer.next_sequence
        assert producer.error is None and len(producer.acked) == sent > 0
        assert reader.until(sent).num_rows == sent
        # What was published while servers were swapped got to the follower over connections that went on.
        assert cluster.follower.report(cluster.segment).end == sent
        swaps = [line["after_seconds"] for line in broker.events("server.replaced")]
        print(
            f"{len(swaps)} swaps in {max(swaps)} s at most; {sent} messages, slowest ack {max(stalls):.3f} s;", end=" "
        )
        print(f"{failures} new connections refused, for {max(gaps):.3f} s at most")
        # A segment that is opened now is replicated with the new certificates, over a new connection.
        second = cluster.open(make_topic("travel/hotels"))
        assert second.replicas == cluster.segment.replicas
        reader.cancel()
        producer.close()


@pytest.mark.slow
def test_the_relay_carries_tls_to_the_leader_and_to_brokers(
    brokers: BrokerProcesses, release: Release, leader: SecureLeader
) -> None:
    cluster = SecureCluster(brokers, leader, "--relay", "127.0.0.1:0")
    via = ("grpc.http_proxy", f"http://{cluster.primary.event('broker.ready')['relay']}")
    leader.brokers = [
        admin_pb2.BrokerList.Broker(address=it.address, incarnation=it.incarnation, state="ALIVE")
        for it in (cluster.primary, cluster.follower)
    ]
    named = ("grpc.ssl_target_name_override", LEADER_SERVER_NAME)
    roots = grpc.ssl_channel_credentials(release.authority.roots)
    with grpc.secure_channel("leader:7070", roots, [via, named]) as channel:
        reply = AuthStub(channel).Login(
            auth_pb2.LoginRequest(incarnation="i"),
            metadata=[("authorization", f"Bearer {release.token}")],
            timeout=HANG_GUARD,
        )
    assert reply.release == release.name
    for it in (cluster.primary, cluster.follower):
        client = release.connect(it.address, it.incarnation, release.certificate(Role.CLIENT, "ada"), via)
        status = pb.BrokerStatus.FromString(call(client, "status", Empty(), timeout=HANG_GUARD))
        assert status.incarnation == it.incarnation
    # An address that is listed with another incarnation is no target: nobody there has its certificate.
    leader.brokers[1].incarnation = "another"
    stranger = release.connect(cluster.follower.address, "another", release.certificate(Role.CLIENT, "ada"), via)
    with pytest.raises(SmqError) as caught:
        call(stranger, "status", Empty(), timeout=HANG_GUARD)
    assert not isinstance(caught.value, PermissionDenied | Unauthenticated)
