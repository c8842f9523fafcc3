"""The relay connects to this cluster's leader, brokers and filer only."""

from __future__ import annotations

import socket
import threading
from functools import partial

import pytest

from smq_broker.access.dialer import FlightDialer
from smq_broker.leader_client.leader_channels import LeaderChannels
from smq_broker.streams.relay import parse_request
from smq_broker.streams.relay_targets import RelayTargets, list_brokers_by_address, read_incarnation_at
from smq_core.errors import InvalidRequest, Unavailable
from smq_proto.v1 import admin_pb2
from support.processes.leader_stub import RecordingLeader


class FakeLeaders:
    """A leader with a list of brokers, and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.leaders = ["10.0.0.1:7070", "10.0.0.2:7070"]
        self.brokers = {"10.0.1.1:7071"}
        self.strangers: set[str] = set()
        """Addresses that a report named, where no broker answers."""
        self.list_calls: list[str] = []
        self.targets = RelayTargets(
            lambda: self.leaders,
            static_targets=["seaweedfs:8333"],
            list_brokers=self.list_brokers,
            read_incarnation=self.read_incarnation,
            clock=lambda: self.now,
        )

    def list_brokers(self, leader: str) -> dict[str, set[str]]:
        self.list_calls.append(leader)
        return {address: {f"i-{address}"} for address in self.brokers | self.strangers}

    def read_incarnation(self, address: str, _: str) -> str:
        return f"i-{address}" if address in self.brokers else ""


def test_leader_is_whoever_leads_now() -> None:
    cluster = FakeLeaders()
    assert cluster.targets.resolve("leader:7070") == "10.0.0.1:7070"
    cluster.leaders = ["10.0.0.2:7070"]
    assert cluster.targets.resolve("leader:1") == "10.0.0.2:7070"
    cluster.leaders = []
    with pytest.raises(Unavailable, match="no leader"):
        cluster.targets.resolve("leader:7070")


def test_leaders_and_the_filer_are_always_targets() -> None:
    cluster = FakeLeaders()
    assert cluster.targets.resolve("10.0.0.2:7070") == "10.0.0.2:7070"
    assert cluster.targets.resolve("seaweedfs:8333") == "seaweedfs:8333"
    assert cluster.list_calls == []


def test_a_new_broker_is_found_within_a_second() -> None:
    cluster = FakeLeaders()
    assert cluster.targets.resolve("10.0.1.1:7071") == "10.0.1.1:7071"
    cluster.brokers = {"10.0.1.1:7071", "10.0.1.2:7071"}
    with pytest.raises(InvalidRequest, match=r"10\.0\.1\.2:7071 is no broker"):
        cluster.targets.resolve("10.0.1.2:7071")
    cluster.now = 1.0
    assert cluster.targets.resolve("10.0.1.2:7071") == "10.0.1.2:7071"
    assert cluster.list_calls == ["10.0.0.1:7070"] * 2


def test_brokers_are_remembered_while_no_leader_answers_but_not_for_ever() -> None:
    cluster = FakeLeaders()
    cluster.targets.resolve("10.0.1.1:7071")
    cluster.brokers = set()
    cluster.now = 599.0
    assert cluster.targets.resolve("10.0.1.1:7071")
    cluster.now = 601.0
    with pytest.raises(InvalidRequest):
        cluster.targets.resolve("10.0.1.1:7071")


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("CONNECT 10.0.1.1:7071 HTTP/1.1", (True, "10.0.1.1:7071")),
        ("CONNECT leader:7070 HTTP/1.1", (True, "leader:7070")),
        ("GET http://seaweedfs:8333/smq/a?list-type=2 HTTP/1.1", (False, "seaweedfs:8333")),
        ("PUT http://seaweedfs/smq/a HTTP/1.1", (False, "seaweedfs:80")),
    ],
)
def test_a_request_line_names_its_target(line: str, wanted: tuple[bool, str]) -> None:
    assert parse_request(f"{line}\r\nHost: x\r\n\r\n".encode()) == wanted


@pytest.mark.parametrize(
    "line",
    ["GET / HTTP/1.1", "CONNECT nowhere HTTP/1.1", "CONNECT a:b HTTP/1.1", "", "\x16\x03\x01 tls", "GET ftp://a/b"],
)
def test_anything_else_is_refused(line: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_request(f"{line}\r\n\r\n".encode())


def test_an_address_where_no_broker_answers_is_no_target() -> None:
    cluster = FakeLeaders()
    cluster.strangers = {"169.254.169.254:80"}
    with pytest.raises(InvalidRequest, match="is no broker"):
        cluster.targets.resolve("169.254.169.254:80")
    assert cluster.targets.resolve("10.0.1.1:7071") == "10.0.1.1:7071"
    cluster.brokers = {"169.254.169.254:80"}
    assert cluster.targets.resolve("169.254.169.254:80"), "it answers now"


def test_a_new_process_at_the_address_of_a_former_one_is_a_target() -> None:
    """The leader lists both until the end of the former one is proved."""
    address, states = "10.0.1.9:7071", (("new", "ALIVE"), ("former", "SUSPECT"))
    for listed in (states, states[::-1]):
        with RecordingLeader() as leader:
            leader.brokers = [
                admin_pb2.BrokerList.Broker(address=address, incarnation=incarnation, state=state)
                for incarnation, state in listed
            ]
            targets = RelayTargets(
                lambda at=leader.address: [at],
                static_targets=[],
                list_brokers=partial(list_brokers_by_address, LeaderChannels()),
                read_incarnation=lambda *_: "new",
                clock=lambda: 0.0,
            )
            assert targets.resolve(address) == address
            assert list_brokers_by_address(LeaderChannels(), leader.address) == {address: {"new", "former"}}


def test_a_server_that_is_no_broker_has_no_incarnation() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        threading.Thread(target=lambda: server.accept()[0].close(), daemon=True).start()
        assert read_incarnation_at(FlightDialer(), address, "i") == ""
