"""Which hosts a broker may have in its certificate."""

from __future__ import annotations

import pytest

from smq_core.access.peers import LEADER_SERVER_NAME, broker_server_name
from smq_core.access.server_hosts import MAX_HOSTS, checked_hosts
from smq_core.errors import InvalidRequest


@pytest.mark.parametrize(
    "host", ["10.1.2.3", "::1", "fd00::a:3", "localhost", "smq-kafka.queue.svc.cluster.local", "b-1.example.com", "x1"]
)
def test_addresses_and_dns_names_may_be_there(host: str) -> None:
    assert checked_hosts([host]) == [host]


@pytest.mark.parametrize(
    "host",
    [
        LEADER_SERVER_NAME,
        broker_server_name("i1"),
        "SMQ.internal",
        "leader.smq.internal.",
        "x.y.smq.internal",
        "*.example.com",
        "",
        "a b",
        "a_b",
        "-a",
        "a-",
        "a..b",
        "x" * 64,
        ".".join(["x" * 60] * 5),
        "ä.example",
        "a/b",
        "a\n",
    ],
)
def test_names_of_the_release_and_what_is_no_name_may_not(host: str) -> None:
    with pytest.raises(InvalidRequest):
        checked_hosts([host])


def test_each_is_there_once_and_there_are_not_many() -> None:
    assert checked_hosts(["B.example", "b.example.", "10.0.0.1"]) == ["b.example", "10.0.0.1"]
    with pytest.raises(InvalidRequest):
        checked_hosts(f"b{number}" for number in range(MAX_HOSTS + 1))
