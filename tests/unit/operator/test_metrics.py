"""The leader's metrics are what docs/metrics.md says."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from smq_operator.metrics import Metrics
from smq_storage.store import open_store
from support.fake_fleet import FakeFleet
from support.leader_in_memory import FakeWorld, LeaderInMemory, leading, until

DOCS = Path(__file__).parents[3] / "docs" / "metrics.md"


def test_every_metric_is_documented_and_every_documented_one_exists():
    async def exposition() -> str:
        store = open_store("memory://")
        fleet, world = FakeFleet(store), FakeWorld(2)
        for name in ("a", "b"):
            fleet.add(name)
        world.wish("default/t")
        leader = LeaderInMemory(world, fleet, store)
        async with leading(leader):
            await until(lambda: leader.loop.decisions and leader.loop.topics["default/t"].quiet)
            return Metrics(leader.desk, leader.collector).exposition()[0].decode()

    text = asyncio.run(exposition())
    served = set(re.findall(r"^(smq_\w+)(?:\{| )", text, re.MULTILINE))
    documented = set(re.findall(r"^\| `(smq_\w+)`", DOCS.read_text().split("## Leader")[1], re.MULTILINE))
    assert served == documented
    assert 'smq_leader_brokers{state="alive"} 2.0' in text
    assert 'smq_topic_segments{phase="open",topic="default/t"} 1.0' in text
    assert 'smq_leader_decisions_total{action="create",topic="default/t"} 1.0' in text
