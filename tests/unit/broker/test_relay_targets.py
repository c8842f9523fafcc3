"""Where a relay lets clients go."""

from __future__ import annotations

import pytest

from smq_broker.relay import requested
from smq_broker.targets import Targets
from smq_core.errors import InvalidRequest, Unavailable


class World:
    """A leader that knows brokers, and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.leaders = ["10.0.0.1:7070", "10.0.0.2:7070"]
        self.brokers = {"10.0.1.1:7071"}
        self.asked: list[str] = []
        self.targets = Targets(lambda: self.leaders, ["seaweedfs:8333"], self.ask, lambda: self.now)

    def ask(self, leader: str) -> set[str]:
        self.asked.append(leader)
        return self.brokers


def test_leader_is_whoever_leads_now() -> None:
    world = World()
    assert world.targets.resolve("leader:7070") == "10.0.0.1:7070"
    world.leaders = ["10.0.0.2:7070"]
    assert world.targets.resolve("leader:1") == "10.0.0.2:7070"
    world.leaders = []
    with pytest.raises(Unavailable, match="no leader"):
        world.targets.resolve("leader:7070")


def test_leaders_and_the_filer_need_no_asking() -> None:
    world = World()
    assert world.targets.resolve("10.0.0.2:7070") == "10.0.0.2:7070"
    assert world.targets.resolve("seaweedfs:8333") == "seaweedfs:8333"
    assert world.asked == []


def test_a_new_broker_is_found_within_a_second() -> None:
    world = World()
    assert world.targets.resolve("10.0.1.1:7071") == "10.0.1.1:7071"
    world.brokers = {"10.0.1.1:7071", "10.0.1.2:7071"}
    with pytest.raises(InvalidRequest, match=r"10\.0\.1\.2:7071 is no broker"):
        world.targets.resolve("10.0.1.2:7071")
    world.now = 1.0
    assert world.targets.resolve("10.0.1.2:7071") == "10.0.1.2:7071"
    assert world.asked == ["10.0.0.1:7070"] * 2


def test_brokers_are_remembered_while_no_leader_answers_but_not_for_ever() -> None:
    world = World()
    world.targets.resolve("10.0.1.1:7071")
    world.brokers = set()
    world.now = 599.0
    assert world.targets.resolve("10.0.1.1:7071")
    world.now = 601.0
    with pytest.raises(InvalidRequest):
        world.targets.resolve("10.0.1.1:7071")


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("CONNECT 10.0.1.1:7071 HTTP/1.1", (True, "10.0.1.1:7071")),
        ("CONNECT leader:7070 HTTP/1.1", (True, "leader:7070")),
        ("GET http://seaweedfs:8333/smq/a?list-type=2 HTTP/1.1", (False, "seaweedfs:8333")),
        ("PUT http://seaweedfs/smq/a HTTP/1.1", (False, "seaweedfs:80")),
    ],
)
def test_what_is_asked_for(line: str, wanted: tuple[bool, str]) -> None:
    assert requested(f"{line}\r\nHost: x\r\n\r\n".encode()) == wanted


@pytest.mark.parametrize(
    "line",
    ["GET / HTTP/1.1", "CONNECT nowhere HTTP/1.1", "CONNECT a:b HTTP/1.1", "", "\x16\x03\x01 tls", "GET ftp://a/b"],
)
def test_anything_else_is_refused(line: str) -> None:
    with pytest.raises(InvalidRequest):
        requested(f"{line}\r\n\r\n".encode())
