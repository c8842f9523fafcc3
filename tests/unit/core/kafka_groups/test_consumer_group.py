"""The rules of groups whose coordinator assigns the partitions, one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from smq_core.kafka_groups.consumer.group import ConsumerGroup, ConsumerGroupState
from smq_core.kafka_groups.consumer.heartbeats import HeartbeatAnswer, HeartbeatRefused, HeartbeatRequest
from smq_core.kafka_groups.consumer.partitions import Partitions, TopicSize, by_topic, flat
from smq_core.kafka_groups.group_errors import GroupError
from smq_core.kafka_groups.requests import GroupSettings
from smq_core.model.entities import SECOND

SETTINGS = GroupSettings(max_members=3)
REBALANCE = 20 * SECOND
SIZES = {"t": TopicSize("T", 4), "u": TopicSize("U", 2)}


class Client:
    """A member as clients are: it uses what it was assigned, and says what it uses."""

    def __init__(self, name: str, instance: str | None = None) -> None:
        self.name = name
        self.instance = instance
        self.epoch = 0
        self.owned: Partitions = frozenset()


class Driver:
    """A group whose state is stored at once, unless ``stores`` is false."""

    def __init__(self, settings: GroupSettings = SETTINGS) -> None:
        self.settings = settings
        self.group = ConsumerGroup(settings)
        self.now = 0
        self.stores = True
        self.topics: dict[str, TopicSize] = dict(SIZES)
        self.clients: dict[str, Client] = {}
        self.answers: dict[int, HeartbeatAnswer] = {}
        self._tickets = 0

    def collect(self) -> None:
        if self.stores and self.group.has_to_store:
            self.group.stored(self.group.version_to_store, self.now)
        self.answers |= dict(self.group.take_answers())

    def send(self, request: HeartbeatRequest) -> int:
        """The ticket."""
        self._tickets += 1
        names = self.group.names_to_find(request, self.now)
        found = {name: self.topics.get(name) for name in names}
        self.group.heartbeat(self._tickets, request, found, self.now)
        self.collect()
        return self._tickets

    def full(self, name: str, *topics: str, **changes: object) -> HeartbeatRequest:
        client = self.clients.setdefault(name, Client(name))
        request = HeartbeatRequest(
            member_id=name,
            epoch=client.epoch,
            instance_id=client.instance,
            rebalance_timeout=REBALANCE,
            names=frozenset(topics or ("t",)),
            owned=client.owned,
        )
        return replace(request, **changes)

    def take(self, name: str, ticket: int) -> HeartbeatAnswer:
        """The client uses what it was given."""
        answer, client = self.answers[ticket], self.clients[name]
        if answer.error is GroupError.NONE:
            client.epoch = answer.epoch
            if answer.assignment is not None:
                client.owned = flat(answer.assignment)
        return answer

    def join(self, name: str, *topics: str, **changes: object) -> HeartbeatAnswer:
        self.clients[name] = Client(name, str(changes["instance_id"]) if "instance_id" in changes else None)
        return self.take(name, self.send(self.full(name, *topics, **changes)))

    def beat(self, name: str, **changes: object) -> HeartbeatAnswer:
        """A heartbeat that says what the client uses."""
        client = self.clients[name]
        request = HeartbeatRequest(member_id=name, epoch=client.epoch, instance_id=client.instance, owned=client.owned)
        return self.take(name, self.send(replace(request, **changes)))

    def rest(self) -> None:
        """Until nothing changes any more."""
        for _ in range(8):
            for name in list(self.group.members):
                self.beat(name)

    def tick(self, seconds: float) -> list[str]:
        self.now += int(seconds * SECOND)
        gone = self.group.tick(self.now)
        self.collect()
        return gone

    def restart(self) -> None:
        """Another coordinator continues with what is stored."""
        members, generation = self.group.members_to_store, self.group.generation_to_store
        self.group = ConsumerGroup(self.settings, generation, members=members, now=self.now)
        self.collect()


@pytest.fixture
def driver() -> Driver:
    return Driver()


def numbers(driver: Driver, name: str) -> list[int]:
    return sorted(number for _, number in driver.clients[name].owned)


def test_the_first_member_gets_all_partitions_with_its_first_heartbeat(driver: Driver) -> None:
    assert driver.group.state is ConsumerGroupState.EMPTY
    answer = driver.join("a", "t", "u", "missing")
    assert answer.epoch == 1 and answer.heartbeat_interval == 5 * SECOND
    assert answer.assignment == {"T": (0, 1, 2, 3), "U": (0, 1)}
    assert driver.group.state is ConsumerGroupState.STABLE
    assert driver.beat("a").assignment is None, "it has it"


def test_a_partition_goes_to_its_next_member_after_the_former_one_has_given_it_up(driver: Driver) -> None:
    driver.join("a")
    joined = driver.join("b")
    assert joined.epoch == 2 and joined.assignment == {}
    assert driver.group.state is ConsumerGroupState.RECONCILING
    assert driver.beat("a", owned=None).epoch == 1, "it has to give up two first"
    assert numbers(driver, "a") == [0, 1]
    assert driver.beat("b").assignment is None, "they are not given up before the member says so"
    assert driver.beat("a").epoch == 2
    assert driver.beat("b").assignment == {"T": (2, 3)}
    assert driver.group.state is ConsumerGroupState.STABLE


def test_a_member_that_does_not_give_up_partitions_in_time_is_fenced(driver: Driver) -> None:
    driver.join("a")
    driver.join("b")
    driver.beat("a", owned=None)
    driver.now += 19 * SECOND
    assert driver.beat("a", owned=None, epoch=1).error is GroupError.NONE
    assert driver.tick(0.5) == [] and driver.tick(0.5) == ["a"]
    assert driver.beat("a", owned=None, epoch=1).error is GroupError.UNKNOWN_MEMBER_ID
    driver.beat("b")
    assert numbers(driver, "b") == [0, 1, 2, 3]


def test_the_partitions_of_a_member_without_heartbeats_go_to_the_others(driver: Driver) -> None:
    driver.join("a")
    driver.join("b")
    driver.rest()
    driver.now += 40 * SECOND
    driver.beat("b")
    assert driver.tick(4) == [] and driver.tick(1) == ["a"]
    driver.rest()
    assert numbers(driver, "b") == [0, 1, 2, 3]


def test_a_member_that_leaves_is_gone_at_once(driver: Driver) -> None:
    driver.join("a")
    driver.join("b")
    driver.rest()
    assert driver.beat("a", epoch=-1).epoch == -1
    driver.rest()
    assert numbers(driver, "b") == [0, 1, 2, 3]
    assert driver.beat("a", epoch=-1).error is GroupError.UNKNOWN_MEMBER_ID
    driver.beat("b", epoch=-1)
    assert driver.group.state is ConsumerGroupState.EMPTY and driver.group.is_idle


@pytest.mark.parametrize("epoch", [1, 3, 9])
def test_a_member_with_another_epoch_is_fenced(driver: Driver, epoch: int) -> None:
    driver.join("a")
    driver.join("b")
    driver.rest()
    driver.clients["b"].owned |= {("T", 0)}  # more than it was given
    assert driver.clients["b"].epoch == 2
    answer = driver.beat("b", epoch=epoch)
    assert answer.error is GroupError.FENCED_MEMBER_EPOCH and "abandon all its partitions" in str(answer.message)
    assert driver.join("b").error is GroupError.NONE
    driver.rest()
    assert numbers(driver, "b") == [2, 3]


def test_a_member_that_has_not_got_its_answer_continues(driver: Driver) -> None:
    driver.join("a")
    driver.join("b")
    driver.beat("a")
    before = driver.clients["a"].epoch, driver.clients["a"].owned
    driver.beat("a")
    assert driver.clients["a"].epoch == 2
    driver.clients["a"].epoch, driver.clients["a"].owned = before
    answer = driver.beat("a")
    assert (answer.error, answer.epoch, answer.assignment) == (GroupError.NONE, 2, {"T": (0, 1)})
    assert driver.beat("a", epoch=1, owned=None).error is GroupError.FENCED_MEMBER_EPOCH, "it may use more"


def test_a_member_that_has_not_got_its_answer_and_uses_more_is_fenced(driver: Driver) -> None:
    driver.join("a")
    driver.join("b")
    driver.rest()
    assert driver.beat("a", epoch=1).error is GroupError.NONE
    answer = driver.beat("a", epoch=1, owned=frozenset({("T", 0), ("T", 3)}))
    assert answer.error is GroupError.FENCED_MEMBER_EPOCH


def test_a_join_whose_answer_is_lost_is_repeated(driver: Driver) -> None:
    assert driver.join("a").epoch == driver.join("a").epoch == 1
    assert numbers(driver, "a") == [0, 1, 2, 3] and len(driver.group.members) == 1


def test_no_member_learns_of_a_change_that_is_not_stored(driver: Driver) -> None:
    driver.stores = False
    ticket = driver.send(driver.full("a"))
    assert ticket not in driver.answers and driver.group.has_to_store
    driver.group.stored(driver.group.version_to_store, driver.now)
    driver.collect()
    assert driver.take("a", ticket).epoch == driver.group.generation_to_store == 1
    driver.stores = True
    assert driver.beat("a").error is GroupError.NONE


def test_a_change_that_cannot_be_stored_is_reported_again(driver: Driver) -> None:
    driver.stores = False
    ticket = driver.send(driver.full("a"))
    driver.group.store_failed(driver.now)
    driver.collect()
    assert driver.answers[ticket].error is GroupError.COORDINATOR_NOT_AVAILABLE
    driver.stores = True
    driver.clients["a"].epoch = 1
    assert driver.beat("a", owned=None).assignment == {"T": (0, 1, 2, 3)}


def test_the_next_coordinator_continues_with_members_and_epochs(driver: Driver) -> None:
    driver.join("a")
    driver.join("b")
    driver.rest()
    epoch = driver.group.epoch
    driver.restart()
    assert driver.group.epoch > epoch
    assert driver.beat("a").error is GroupError.NONE and driver.beat("b").error is GroupError.NONE
    driver.rest()
    assert numbers(driver, "a") == [0, 1] and numbers(driver, "b") == [2, 3]
    assert driver.group.state is ConsumerGroupState.STABLE


def test_the_next_coordinator_keeps_the_partitions_of_members_without_heartbeats(driver: Driver) -> None:
    driver.join("a")
    driver.restart()
    assert driver.join("b").assignment == {}
    assert driver.tick(45) == ["a", "b"]
    driver.clients["b"].epoch = 0
    assert driver.join("b").assignment == {"T": (0, 1, 2, 3)}


def test_a_new_topic_and_more_partitions_lead_to_a_new_epoch(driver: Driver) -> None:
    driver.join("a", "t", "new")
    driver.topics["new"] = TopicSize("N", 1)
    assert driver.beat("a").epoch == 1, "topics are looked for now and then"
    driver.now += 5 * SECOND
    answer = driver.beat("a")
    assert answer.epoch == 2 and answer.assignment == {"T": (0, 1, 2, 3), "N": (0,)}
    driver.topics["new"] = TopicSize("N", 2)
    driver.now += 5 * SECOND
    answer = driver.beat("a")
    assert answer.epoch == 3 and answer.assignment == {"T": (0, 1, 2, 3), "N": (0, 1)}


def test_the_partitions_of_a_deleted_topic_are_given_up(driver: Driver) -> None:
    driver.join("a", "t", "u")
    del driver.topics["u"]
    driver.now += 5 * SECOND
    driver.beat("a")
    assert driver.clients["a"].owned == {("T", number) for number in range(4)}
    driver.topics["u"] = TopicSize("anew", 1)
    driver.now += 5 * SECOND
    driver.rest()
    assert ("anew", 0) in driver.clients["a"].owned


def test_another_subscription_leads_to_a_new_epoch(driver: Driver) -> None:
    driver.join("a")
    answer = driver.beat("a", names=frozenset({"u"}))
    assert answer.epoch == 1 and answer.assignment == {}
    answer = driver.beat("a")
    assert answer.epoch == 2 and answer.assignment == {"U": (0, 1)}


def test_a_pattern_subscribes_to_what_matches_it(driver: Driver) -> None:
    answer = driver.join("a", names=None, pattern="t|u", matched=frozenset({"t", "u"}))
    assert answer.assignment == {"T": (0, 1, 2, 3), "U": (0, 1)}
    request = HeartbeatRequest(member_id="a", epoch=1)
    assert driver.group.pattern_to_match(request, driver.now) == ""
    driver.now += 5 * SECOND
    assert driver.group.pattern_to_match(request, driver.now) == "t|u"
    driver.beat("a", matched=frozenset({"t"}))
    assert driver.beat("a").assignment is None and numbers(driver, "a") == [0, 1, 2, 3]
    assert driver.group.pattern_to_match(request, driver.now) == ""
    driver.beat("a", pattern="", matched=frozenset())
    assert driver.clients["a"].owned == frozenset()


def test_the_assignor_is_the_one_that_most_members_prefer(driver: Driver) -> None:
    assert driver.group.assignor == "uniform"
    driver.join("a", assignor="range")
    assert driver.group.assignor == "range"
    driver.join("b", assignor="uniform")
    driver.join("c", assignor="uniform")
    assert driver.group.assignor == "uniform"


def test_a_static_member_that_is_away_keeps_its_partitions_until_its_session_ends(driver: Driver) -> None:
    driver.join("a", instance_id="i")
    driver.join("b")
    driver.rest()
    epoch = driver.group.epoch
    assert driver.beat("a", epoch=-2).epoch == -2
    driver.beat("b")
    assert numbers(driver, "b") == [2, 3]
    answer = driver.join("a2", instance_id="i")
    assert answer.assignment == {"T": (0, 1)} and driver.group.epoch == epoch
    assert driver.beat("a").error is GroupError.FENCED_INSTANCE_ID
    driver.beat("a2", epoch=-2)
    driver.now += 30 * SECOND
    driver.beat("b")
    assert driver.tick(15) == ["a2"]
    driver.beat("b")
    assert numbers(driver, "b") == [0, 1, 2, 3]


def test_an_instance_that_is_in_use_is_not_given_to_another_member(driver: Driver) -> None:
    driver.join("a", instance_id="i")
    answer = driver.join("b", instance_id="i")
    assert answer.error is GroupError.UNRELEASED_INSTANCE_ID and "a" in str(answer.message)
    assert driver.join("a", instance_id="i").error is GroupError.NONE, "the same member joins again"
    assert driver.beat("a", instance_id="j").error is GroupError.UNKNOWN_MEMBER_ID


def test_only_members_with_their_epoch_commit(driver: Driver) -> None:
    assert driver.group.check_commit("", None, -1, 0) is GroupError.NONE
    driver.join("a")
    driver.join("b")
    driver.rest()
    check = driver.group.check_commit
    assert check("a", None, 2, 0) is GroupError.NONE
    assert check("a", None, 1, 0) is check("a", None, 3, 0) is GroupError.STALE_MEMBER_EPOCH
    assert check("x", None, 2, 0) is check("", None, -1, 0) is GroupError.UNKNOWN_MEMBER_ID
    assert driver.group.check_fetch("a", 1) is GroupError.STALE_MEMBER_EPOCH
    driver.beat("a", epoch=-1)
    assert check("a", None, 2, 0) is GroupError.UNKNOWN_MEMBER_ID


def test_members_and_subscriptions_are_bounded() -> None:
    driver = Driver(GroupSettings(max_members=2, max_metadata_bytes=20))
    driver.join("a")
    assert driver.join("b", "x" * 20).error is GroupError.GROUP_MAX_SIZE_REACHED
    assert driver.join("b").error is GroupError.NONE
    assert driver.join("c").error is GroupError.GROUP_MAX_SIZE_REACHED
    assert driver.beat("a", names=frozenset({"y" * 20})).error is GroupError.GROUP_MAX_SIZE_REACHED
    assert driver.beat("a").error is GroupError.NONE


def test_topics_that_have_to_be_looked_for_are_bounded() -> None:
    driver = Driver(GroupSettings(max_topics=2))
    driver.join("a", "t", "u")
    assert driver.join("b", "t", "u").error is GroupError.NONE
    with pytest.raises(HeartbeatRefused) as refused:
        driver.join("c", "t", "v")
    assert refused.value.error is GroupError.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"member_id": ""}, GroupError.INVALID_REQUEST),
        ({"instance_id": ""}, GroupError.INVALID_REQUEST),
        ({"rack_id": ""}, GroupError.INVALID_REQUEST),
        ({"epoch": -3}, GroupError.INVALID_REQUEST),
        ({"epoch": -2}, GroupError.INVALID_REQUEST),
        ({"rebalance_timeout": None}, GroupError.INVALID_REQUEST),
        ({"owned": None}, GroupError.INVALID_REQUEST),
        ({"owned": frozenset({("T", 0)})}, GroupError.INVALID_REQUEST),
        ({"names": None}, GroupError.INVALID_REQUEST),
        ({"assignor": "sticky"}, GroupError.UNSUPPORTED_ASSIGNOR),
        ({"epoch": 1}, GroupError.UNKNOWN_MEMBER_ID),
        ({"epoch": -1}, GroupError.UNKNOWN_MEMBER_ID),
        ({"epoch": 1, "instance_id": "i"}, GroupError.UNKNOWN_MEMBER_ID),
        ({"names": frozenset()}, GroupError.NONE),
    ],
)
def test_requests_that_make_no_sense_are_refused(driver: Driver, changes: dict[str, object], error: GroupError) -> None:
    answer = driver.answers[driver.send(driver.full("a", **changes))]
    assert answer.error is error
    assert len(driver.group.members) == (error is GroupError.NONE)
    assert (answer.message is None) == (error is GroupError.NONE)


def test_topics_that_nobody_has_looked_for_are_not_taken_as_missing(driver: Driver) -> None:
    driver.join("a")
    driver.restart()
    driver.group.heartbeat(99, HeartbeatRequest(member_id="a", epoch=1), {}, driver.now)
    driver.collect()
    assert driver.answers[99].error is GroupError.COORDINATOR_LOAD_IN_PROGRESS
    driver.beat("a")
    assert numbers(driver, "a") == [0, 1, 2, 3]


def test_who_waits_is_answered_when_the_group_ends(driver: Driver) -> None:
    driver.stores = False
    ticket = driver.send(driver.full("a"))
    driver.group.end(GroupError.NOT_COORDINATOR)
    driver.collect()
    assert driver.answers[ticket].error is GroupError.NOT_COORDINATOR


def test_partitions_are_grouped_by_topic_in_order() -> None:
    grouped = by_topic({("b", 1), ("a", 2), ("a", 0)})
    assert grouped == {"a": (0, 2), "b": (1,)} and flat(grouped) == {("b", 1), ("a", 2), ("a", 0)}
