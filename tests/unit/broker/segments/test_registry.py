"""Which segments one incarnation opens, finds, refuses and releases."""

from __future__ import annotations

import pytest

from smq_broker.segments import registry as registry_module
from smq_core.errors import NotHosted, Unavailable, WrongIncarnation
from smq_core.replica.segment_replica import ReplicaState
from smq_storage.object_store.store import open_store
from support.in_memory.broker_parts import BrokerParts
from support.processes.broker import make_segment, make_topic

TOPIC = make_topic()


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> BrokerParts:
    monkeypatch.setattr(registry_module, "OPEN_WAIT_SECONDS", 0.0)
    return BrokerParts("b1", open_store("memory://"))


def test_a_segment_that_was_refused_is_never_opened(broker: BrokerParts) -> None:
    segment = make_segment(TOPIC, broker.replica)
    with pytest.raises(NotHosted, match="will never open it"):
        broker.registry.get_or_refuse(TOPIC.uid, segment.name)
    for _ in range(2):
        with pytest.raises(NotHosted, match="choose another broker"):
            broker.opener.open(TOPIC, segment)
    assert broker.registry.all() == []


def test_a_segment_that_was_fenced_is_not_opened_again(broker: BrokerParts) -> None:
    segment = make_segment(TOPIC, broker.replica)
    hosted = broker.opener.open(TOPIC, segment)
    assert broker.opener.open(TOPIC, segment) is hosted, "repeating the call is harmless"
    with hosted as machine:
        machine.fence()
    with pytest.raises(NotHosted, match="choose another broker"):
        broker.opener.open(TOPIC, segment)


class UnresponsiveLink:
    """A link to a follower that answers nothing."""

    incarnation = "i-follower"

    def start(self) -> None: ...

    def unresponsive(self) -> bool:
        return True

    def notify(self, *, grown: bool, progressed: bool, sends_now: bool) -> None: ...

    def can_send_now(self) -> bool:
        return False

    def send_now(self) -> None: ...


def test_links_of_ended_segments_do_not_say_that_a_follower_is_unresponsive(broker: BrokerParts) -> None:
    """The leader would move the other segments of the two, again and again, until this one is released."""
    hosted = broker.opener.open(TOPIC, make_segment(TOPIC, broker.replica))
    hosted.links = [UnresponsiveLink()]
    assert broker.registry.unresponsive_followers() == ["i-follower"]
    with hosted as machine:
        machine.fence()
    assert broker.registry.unresponsive_followers() == []


def test_a_request_for_another_incarnation_is_refused(broker: BrokerParts) -> None:
    segment = make_segment(TOPIC, broker.replica)
    hosted = broker.opener.open(TOPIC, segment)
    assert broker.registry.find(segment.name, TOPIC.uid, broker.replica.incarnation) is hosted
    with pytest.raises(WrongIncarnation):
        broker.registry.find(segment.name, TOPIC.uid, "i-before")


def test_a_broker_that_drains_opens_nothing_new(broker: BrokerParts) -> None:
    first, second = (make_segment(TOPIC, broker.replica, number=number) for number in range(2))
    hosted = broker.opener.open(TOPIC, first)
    broker.registry.drain()
    with pytest.raises(Unavailable, match="drained"):
        broker.opener.open(TOPIC, second)
    assert broker.registry.all() == [hosted]
    assert broker.opener.open(TOPIC, first) is hosted


def test_a_sealed_segment_is_released_after_a_while_and_still_counted(
    broker: BrokerParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = make_segment(TOPIC, broker.replica)
    hosted = broker.opener.open(TOPIC, segment)
    hosted.machine.counters.messages = 3
    broker.registry.remove_expired()
    assert broker.registry.all() == [hosted], "it is not sealed"
    broker.seal(TOPIC, segment)
    assert hosted.machine.state is ReplicaState.SEALED
    broker.registry.remove_expired()
    assert broker.registry.all() == [hosted], "its outcome is kept for a while"
    monkeypatch.setattr(registry_module, "OUTCOME_RETENTION_SECONDS", -1.0)
    broker.registry.remove_expired()
    assert broker.registry.all() == []
    assert broker.registry.released_totals["primary"].messages == 3
    with pytest.raises(NotHosted):
        broker.opener.open(TOPIC, segment)
