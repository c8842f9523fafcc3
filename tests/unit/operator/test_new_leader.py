"""What a leader says before it has looked at the world: that it does not know yet, never that a topic is not there."""

from __future__ import annotations

import pytest

from smq_core.errors import Unavailable, UnknownTopic
from smq_storage.store import open_store
from support.fake_fleet import FakeFleet
from support.leader_in_memory import FakeWorld, LeaderInMemory


def test_a_new_leader_does_not_deny_what_it_has_not_looked_for() -> None:
    store = open_store("memory://")
    world = FakeWorld()
    loop = LeaderInMemory(world, FakeFleet(store), store).loop
    with pytest.raises(Unavailable, match="does not know its topics yet"):
        loop.topic("t")
    loop.sync_wishes()
    with pytest.raises(UnknownTopic, match="there is no topic default/t"):
        loop.topic("t")
