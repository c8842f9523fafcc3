"""The proxy finds brokers at the leader, and says why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from smq_broker.kafka.cluster import KafkaNode, node_id
from smq_broker.kafka.proxy.brokers.discovery import BrokerDiscovery
from smq_core.errors import Unavailable


class Leader:
    def __init__(self) -> None:
        self.answer: Mapping[str, str] | None = None

    def list_brokers(self) -> Mapping[str, str]:
        if self.answer is None:
            raise Unavailable("nobody leads")
        return self.answer


def test_it_is_ready_once_a_broker_is_known_and_stays_so_without_a_leader() -> None:
    leader, shown = Leader(), list[list[KafkaNode]]()
    discovery = BrokerDiscovery(leader.list_brokers, on_brokers=lambda it: shown.append(list(it)), wait=lambda _: True)
    discovery.run()
    assert discovery.problem is not None and "nobody leads" in discovery.problem
    leader.answer = {}
    discovery.run()
    assert discovery.problem is not None and "--kafka" in discovery.problem
    leader.answer = {"i1": "10.0.0.1:9092", "i2": "[fd00::1]:9093"}
    discovery.run()
    assert discovery.problem is None
    assert shown[-1] == [KafkaNode(node_id("i1"), "10.0.0.1", 9092), KafkaNode(node_id("i2"), "fd00::1", 9093)]
    leader.answer = None
    discovery.run()
    assert discovery.problem is None


def test_other_roots_are_noticed(tmp_path: Path) -> None:
    leader, roots, noticed = Leader(), tmp_path / "ca.crt", list[bool]()
    roots.write_text("one")
    discovery = BrokerDiscovery(
        leader.list_brokers,
        on_brokers=lambda _: None,
        wait=lambda _: True,
        ca_file=str(roots),
        on_roots=lambda: noticed.append(True),
    )
    discovery.check()
    assert noticed == []
    roots.write_text("two")
    discovery.check()
    discovery.check()
    assert noticed == [True]
    roots.unlink()
    discovery.check()
    assert noticed == [True]
