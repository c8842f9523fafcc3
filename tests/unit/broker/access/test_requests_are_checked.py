"""Each stream and action of a broker checks its caller where it is served, and the server speaks mutual TLS."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from google.protobuf.message import Message
from structlog.testing import capture_logs

from smq_broker.access.credentials import BrokerCredentials, Login
from smq_broker.access.dialer import FlightDialer
from smq_broker.replication.connection import NO_SCHEMA
from smq_broker.streams.request_limit import RequestLimit
from smq_broker.streams.server import BrokerServer, RequestHandler
from smq_core.access.peers import Role
from smq_core.access.rights import Right
from smq_core.errors import GrantMissing, PermissionDenied, SmqError, Unauthenticated, UnknownTopic
from smq_proto.flight import from_flight
from smq_proto.signed_grants import GrantVerifier
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL, segment_to_pb, topic_to_pb
from smq_storage.catalog.topics import put_current, put_topic
from smq_storage.object_store.store import open_store
from support.data.raw_flight import rows
from support.in_memory.broker_parts import BrokerParts
from support.in_memory.flight_streams import PutStream
from support.in_memory.secure_access import PeerContext, SecureBrokerAccess
from support.processes.broker import make_segment, make_topic
from support.processes.secure_leader_stub import Release
from support.processes.stored_layouts import plan_open
from support.waiting import HANG_GUARD

TOPIC = make_topic("travel/flights")
ACTIONS = ("open", "seal", "segments", "outcome", "claim", "locate")


class CheckedBroker:
    """A follower of one segment, and what anybody may try at it."""

    def __init__(self) -> None:
        store = open_store("memory://")
        self.parts = BrokerParts("b1", store)
        self.primary = BrokerParts("b2", store)
        self.access = SecureBrokerAccess(TOPIC)
        self.segment = make_segment(TOPIC, self.primary.replica, self.parts.replica)
        put_topic(store, TOPIC)
        put_current(store, TOPIC.name, TOPIC.uid, etag=None)
        plan_open(store, TOPIC, self.segment)
        self.hosted = self.parts.opener.open(TOPIC, self.segment)
        self.handler = RequestHandler(
            access=self.access.access,
            registry=self.parts.registry,
            actions=self.parts.actions(),
            broker_metrics=self.parts.metrics,
            threads=self.parts.threads,
            accepting_batches=threading.Event(),
            max_batch=1 << 20,
            uploads=self.parts.uploads,
            clients=self.parts.clients,
            limit=RequestLimit(),
        )

    def request(self, name: str) -> Message:
        incarnation = self.parts.replica.incarnation
        names = {"topic": TOPIC.name, "uid": TOPIC.uid, "segment": self.segment.name}
        requests: dict[str, Message] = {
            "open": pb.OpenSegment(
                protocol=PROTOCOL,
                topic=topic_to_pb(TOPIC),
                segment=segment_to_pb(self.segment),
                incarnation=incarnation,
            ),
            "seal": pb.SealSegment(protocol=PROTOCOL, incarnation=incarnation, **names),
            "segments": pb.HostedSegmentsRequest(uid=TOPIC.uid),
            "outcome": pb.OutcomeRequest(**names),
            "claim": pb.ClaimProducer(topic=TOPIC.name, uid=TOPIC.uid, producer="p", instance="i"),
            "locate": pb.LocateRequest(topic=TOPIC.name),
        }
        return requests[name]

    def attempt(self, call: str, role: Role, name: str = "ada") -> None:
        """Raises what the caller gets."""
        context = PeerContext(self.access.uri(role, name))
        replica = self.parts.replica
        try:
            if call == "tail":
                ticket = pb.TailTicket(
                    protocol=PROTOCOL, segment=self.segment.name, uid=TOPIC.uid, incarnation=replica.incarnation
                )
                self.handler.get(context, fl.Ticket(ticket.SerializeToString()))
            elif call in ("producers", "replica"):
                hello = pb.PutOpen(protocol=PROTOCOL, incarnation=replica.incarnation, uid=TOPIC.uid)
                if call == "producers":
                    hello.producers.lane = pb.LANE_BULK
                else:
                    hello.replica.CopyFrom(
                        pb.ReplicaHello(
                            primary_incarnation=self.primary.replica.incarnation, connection="c", lane=pb.LANE_SMALL
                        )
                    )
                stream = PutStream(rows([b"a"]).schema if call == "producers" else NO_SCHEMA)
                stream.done_writing()
                descriptor = fl.FlightDescriptor.for_command(hello.SerializeToString())
                self.handler.put(context, descriptor, stream, stream)
            else:
                self.handler.act(context, fl.Action(call, self.request(call).SerializeToString()))
        except (pa.ArrowException, OSError) as error:
            raise from_flight(error) from None


@pytest.fixture
def broker() -> Iterator[CheckedBroker]:
    with capture_logs():
        made = CheckedBroker()
        yield made
        for parts in (made.parts, made.primary):
            parts.stop()


@pytest.mark.parametrize(
    ("call", "role", "error"),
    [
        *((call, Role.BROKER, PermissionDenied) for call in (*ACTIONS, "tail", "producers")),
        *((call, Role.CLIENT, PermissionDenied) for call in ("open", "seal", "segments", "replica")),
        *((call, Role.CLIENT, GrantMissing) for call in ("outcome", "claim", "locate", "tail", "producers")),
        ("replica", Role.LEADER, PermissionDenied),
    ],
)
def test_a_caller_without_the_right_is_refused(
    broker: CheckedBroker, call: str, role: Role, error: type[SmqError]
) -> None:
    with pytest.raises(error) as caught:
        broker.attempt(call, role)
    assert type(caught.value) is error
    assert broker.hosted.machine.end == 0 and not broker.hosted.streams


@pytest.mark.parametrize(
    ("call", "right"),
    [
        ("claim", Right.PRODUCE),
        ("locate", Right.PRODUCE),
        ("locate", Right.CONSUME),
        ("tail", Right.CONSUME),
        ("producers", Right.PRODUCE),
    ],
)
def test_a_client_with_the_grant_gets_in(broker: CheckedBroker, call: str, right: Right) -> None:
    broker.access.present(broker.access.grant(right))
    broker.attempt(call, Role.CLIENT)
    with pytest.raises(GrantMissing):
        broker.attempt(call, Role.CLIENT, "bob")


@pytest.mark.parametrize("call", ["open", "segments", "locate", "tail", "producers", "claim"])
def test_the_leader_gets_in(broker: CheckedBroker, call: str) -> None:
    broker.attempt(call, Role.LEADER, "leader-1")


def test_a_topic_that_is_not_there_is_refused_as_one_that_is(broker: CheckedBroker) -> None:
    """Or whoever has a certificate could find out which topics there are."""

    def locate(role: Role, topic: str) -> SmqError:
        request = pb.LocateRequest(topic=topic).SerializeToString()
        with pytest.raises(fl.FlightServerError) as caught:
            broker.handler.act(PeerContext(broker.access.uri(role, "ada")), fl.Action("locate", request))
        return from_flight(caught.value)

    there, gone = (locate(Role.CLIENT, topic) for topic in (TOPIC.name, "travel/ferries"))
    assert isinstance(there, GrantMissing) and type(gone) is type(there)
    assert gone.message == there.message.replace("flights", "ferries")
    assert isinstance(gone, GrantMissing) and gone.topic == "travel/ferries"
    assert isinstance(locate(Role.LEADER, "travel/ferries"), UnknownTopic)


def test_only_the_primary_itself_replicates(broker: CheckedBroker) -> None:
    broker.attempt("replica", Role.BROKER, broker.primary.replica.incarnation)
    with pytest.raises(PermissionDenied, match="may not replicate as"):
        broker.attempt("replica", Role.BROKER, "i-of-another-broker")
    for role in (Role.CLIENT, Role.LEADER):
        with pytest.raises(PermissionDenied, match="may not call replica"):
            broker.attempt("replica", role, broker.primary.replica.incarnation)


@pytest.mark.parametrize(
    "serve",
    [
        lambda it, context: it.put(context, fl.FlightDescriptor.for_command(b"\xff"), None, None),
        lambda it, context: it.get(context, fl.Ticket(b"\xff")),
        lambda it, context: it.act(context, fl.Action("status", b"")),
        lambda it, context: it.list_actions(context),
    ],
)
def test_who_is_nobody_is_refused_before_a_request_is_parsed(
    broker: CheckedBroker, serve: Callable[[RequestHandler, PeerContext], object]
) -> None:
    with pytest.raises(fl.FlightServerError) as caught:
        serve(broker.handler, PeerContext(""))
    assert isinstance(from_flight(caught.value), Unauthenticated)


def test_a_role_is_refused_before_a_request_is_parsed(broker: CheckedBroker) -> None:
    context = PeerContext(broker.access.uri(Role.CLIENT))
    with pytest.raises(fl.FlightServerError) as caught:
        broker.handler.act(context, fl.Action("open", b"\xff" * 5_000_000))
    assert isinstance(from_flight(caught.value), PermissionDenied)


@pytest.fixture
def served(broker: CheckedBroker, tmp_path: Path) -> Iterator[tuple[Release, str]]:
    """A release, and the address of its broker ``i-b1``."""
    release = Release(tmp_path)
    server = BrokerServer("127.0.0.1:0", broker.handler, release.broker("i-b1"))
    yield release, f"127.0.0.1:{server.port}"
    server.shutdown()


def dialer(release: Release, role: Role = Role.BROKER) -> FlightDialer:
    certificate = release.certificate(role, "i-b2")
    return FlightDialer(BrokerCredentials(Login(release.name, certificate, GrantVerifier([]))))


def answer(client: fl.FlightClient) -> SmqError | None:
    try:
        list(client.do_action("status", fl.FlightCallOptions(timeout=HANG_GUARD)))
    except (pa.ArrowException, OSError) as error:
        return from_flight(error)
    finally:
        client.close()
    return None


def test_a_broker_dials_another_by_its_incarnation(served: tuple[Release, str]) -> None:
    release, address = served
    options = [("grpc.use_local_subchannel_pool", 1)]
    assert answer(dialer(release).connect(address, "i-b1", options)) is None
    refused = answer(dialer(release).connect(address, "i-b3", options))
    assert refused is not None and "did not answer" in refused.message, "that is another process's name"


def test_a_server_with_a_certificate_lets_no_stranger_in(served: tuple[Release, str], tmp_path: Path) -> None:
    release, address = served
    other = Release(tmp_path / "other", "release-2")
    stranger = other.certificate(Role.BROKER, "i-b2")
    own = release.certificate(Role.BROKER, "i-b2")
    name = {"override_hostname": "i-b1.broker.smq.internal", "tls_root_certs": release.authority.roots}
    for client in (
        fl.connect(f"grpc://{address}"),
        fl.connect(f"grpc+tls://{address}", **name),
        fl.connect(f"grpc+tls://{address}", **name, cert_chain=stranger.chain, private_key=stranger.key),
    ):
        refused = answer(client)
        assert refused is not None and "did not answer" in refused.message
    assert answer(fl.connect(f"grpc+tls://{address}", **name, cert_chain=own.chain, private_key=own.key)) is None
