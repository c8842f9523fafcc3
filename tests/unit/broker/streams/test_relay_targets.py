"""The relay connects to this cluster's leader, brokers and filer only."""

from __future__ import annotations

import pytest

from smq_broker.streams.relay import parse_request
from smq_broker.streams.relay_targets import RelayTargets
from smq_core.errors import InvalidRequest, Unavailable


class FakeLeaders:
    """A leader with a list of brokers, and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.leaders = ["10.0.0.1:7070", "10.0.0.2:7070"]
        self.brokers = {"10.0.1.1:7071"}
        self.list_calls: list[str] = []
        self.targets = RelayTargets(lambda: self.leaders, ["seaweedfs:8333"], self.list_brokers, lambda: self.now)

    def list_brokers(self, leader: str) -> set[str]:
        self.list_calls.append(leader)
        return self.brokers


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
