"""Any history of members, answers that are lost, writes, topics and coordinators: nobody shares a partition."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from smq_core.kafka_groups.consumer.group import ConsumerGroup, ConsumerGroupState
from smq_core.kafka_groups.consumer.heartbeats import HeartbeatAnswer, HeartbeatRequest
from smq_core.kafka_groups.consumer.member import ConsumerMember
from smq_core.kafka_groups.consumer.partitions import Partitions, PartitionsByTopic, TopicSize, flat
from smq_core.kafka_groups.group_errors import GroupError
from smq_core.kafka_groups.requests import GroupSettings
from smq_core.model.entities import SECOND

SETTINGS = GroupSettings(max_members=8)
REBALANCE = 20 * SECOND
ALL_NAMES = ["a", "b", "c"]
NAMES = st.sampled_from(ALL_NAMES)
RARELY = st.sampled_from([False, False, False, True])
TOPICS = ("t", "u")
FENCED = (GroupError.FENCED_MEMBER_EPOCH, GroupError.UNKNOWN_MEMBER_ID, GroupError.FENCED_INSTANCE_ID)


class Client:
    """A program. It uses ``owned``, and was given ``given``, which it uses a little later."""

    def __init__(self, name: str, number: int, *, static: bool, assignor: str | None) -> None:
        self.name = name
        self.id = f"{name}-{number}"
        self.instance = f"i-{name}" if static else None
        self.assignor = assignor
        self.epoch = 0
        self.owned: Partitions = frozenset()
        self.given: PartitionsByTopic | None = None
        self.says_all = True
        self.topics = frozenset({"t"})
        self.matched: frozenset[str] | None = None

    def abandon(self) -> None:
        self.epoch, self.owned, self.given, self.says_all = 0, frozenset(), None, True


class ConsumerGroups(RuleBasedStateMachine):
    @initialize(static=st.sets(NAMES), ranges=st.sets(NAMES), patterns=st.sets(NAMES))
    def begin(self, static: set[str], ranges: set[str], patterns: set[str]) -> None:
        self.now = self.tickets = self.numbers = 0
        self.static, self.ranges, self.patterns = static, ranges, patterns
        self.group = ConsumerGroup(SETTINGS)
        self.stored: tuple[int, tuple[ConsumerMember, ...]] = (0, ())
        self.topics = {"t": TopicSize("T0", 3)}
        self.clients: dict[str, Client] = {}
        self.waiting: dict[int, tuple[Client, HeartbeatRequest, bool]] = {}
        self.former: set[tuple[str, int]] = set()
        """Members with their epochs, which were fenced or have left."""

    # ---- what clients do

    def client(self, name: str) -> Client:
        if name not in self.clients:
            self.numbers += 1
            assignor = "range" if name in self.ranges else None
            self.clients[name] = Client(name, self.numbers, static=name in self.static, assignor=assignor)
        return self.clients[name]

    @rule(name=NAMES, loses_answer=RARELY, waits=RARELY)
    def beat(self, name: str, loses_answer: bool, waits: bool) -> None:
        """``waits``: what it changes is not stored at once."""
        client = self.client(name)
        if any(it is client for it, _, _ in self.waiting.values()):
            return  # one at a time
        self.tickets += 1
        if client.says_all:
            client.given = None  # it gets that again. Who says what it uses must not begin to use more.
        request = HeartbeatRequest(
            member_id=client.id,
            epoch=client.epoch,
            instance_id=client.instance,
            # It says what it uses once it has done what it was given.
            owned=client.owned if client.says_all or client.given is None else None,
        )
        if client.says_all:
            names = frozenset() if name in self.patterns else client.topics
            request = replace(request, rebalance_timeout=REBALANCE, names=names, assignor=client.assignor)
            if name in self.patterns:
                request = replace(request, pattern="t|u")
        if self.group.pattern_to_match(request, self.now):
            request = replace(request, matched=frozenset(self.topics))
        self.waiting[self.tickets] = client, request, loses_answer
        self.send(self.tickets, request)
        if self.group.has_to_store and not waits:
            self.store(succeeds=True, is_slow=False)

    def send(self, ticket: int, request: HeartbeatRequest) -> None:
        wanted = self.group.names_to_find(request, self.now)
        self.group.heartbeat(ticket, request, {it: self.topics.get(it) for it in wanted}, self.now)
        self.take()

    @rule(name=NAMES)
    def do_as_assigned(self, name: str) -> None:
        client = self.client(name)
        if client.given is not None:
            client.owned, client.given = flat(client.given), None

    @rule()
    def beat_as_usual(self) -> None:
        """Everybody that is there sends a heartbeat and does as it is answered."""
        for name in list(self.clients):
            self.beat(name, loses_answer=False, waits=False)
            self.do_as_assigned(name)

    @rule(name=NAMES, topics=st.frozensets(st.sampled_from(TOPICS)))
    def subscribe(self, name: str, topics: frozenset[str]) -> None:
        self.client(name).topics, self.client(name).says_all = topics, True

    @rule(name=NAMES)
    def kill(self, name: str) -> None:
        """The program ends without a word. Another one of the name begins anew."""
        self.clients.pop(name, None)

    @rule(name=NAMES, for_now=st.booleans())
    def leave(self, name: str, for_now: bool) -> None:
        client = self.clients.pop(name, None)
        if client is None or not client.epoch:
            return
        epoch = -2 if for_now and client.instance is not None else -1
        self.tickets += 1
        request = HeartbeatRequest(member_id=client.id, epoch=epoch, instance_id=client.instance)
        self.former.add((client.id, client.epoch))
        self.send(self.tickets, request)

    # ---- what happens to the group

    @rule(seconds=st.integers(1, 8))
    def wait(self, seconds: int) -> None:
        self.now += seconds * SECOND
        members = dict(self.group.members)
        for id_ in self.group.tick(self.now):
            self.former.add((id_, members[id_].epoch))
        self.take()

    @precondition(lambda self: self.group.has_to_store)
    @rule(succeeds=st.booleans(), is_slow=st.booleans())
    def store(self, succeeds: bool, is_slow: bool) -> None:
        """``is_slow``: the outcome is a failure, but it was written."""
        if succeeds or is_slow:
            self.stored = self.group.generation_to_store, self.group.members_to_store
        if succeeds:
            self.group.stored(self.group.version_to_store, self.now)
        else:
            self.group.store_failed(self.now)
        self.take()

    @rule()
    def change_coordinator(self) -> None:
        """Everything that is not stored is lost, with all answers."""
        self.group.end(GroupError.NOT_COORDINATOR)
        self.take()
        assert not self.waiting, "nobody answers these any more"
        self.group = ConsumerGroup(SETTINGS, self.stored[0], members=self.stored[1], now=self.now)

    @rule(topic=st.sampled_from(TOPICS), partitions=st.integers(0, 4))
    def change_topic(self, topic: str, partitions: int) -> None:
        """More partitions, a deleted topic, or one that is created anew."""
        known = self.topics.get(topic)
        if known is None:
            self.numbers += 1
            self.topics[topic] = TopicSize(f"{topic.upper()}{self.numbers}", partitions)
        elif partitions > known.partitions:
            self.topics[topic] = TopicSize(known.id, partitions)
        elif partitions == 0:
            del self.topics[topic]

    # ---- what clients are answered

    def take(self) -> None:
        for ticket, answer in self.group.take_answers():
            if ticket in self.waiting:
                self.answered(*self.waiting.pop(ticket), answer)

    def answered(self, client: Client, request: HeartbeatRequest, is_lost: bool, answer: HeartbeatAnswer) -> None:
        if is_lost:
            client.says_all = True
            return
        if answer.error in FENCED:
            self.former.add((client.id, client.epoch))
            client.abandon()
        elif answer.error is not GroupError.NONE:
            client.says_all = True
        else:
            assert client.epoch <= answer.epoch <= self.stored[0], "epochs never go back, and are stored"
            client.says_all = client.says_all and request.rebalance_timeout is None
            client.epoch = answer.epoch
            if answer.assignment is not None:
                client.given = answer.assignment

    # ---- what always holds

    @invariant()
    def no_partition_has_two_members(self) -> None:
        held = [it for one in self.group.members.values() for it in flat(one.assigned) | flat(one.revoking)]
        assert len(held) == len(set(held))

    @invariant()
    def no_partition_is_used_by_two_members(self) -> None:
        """Who was removed because it sent nothing in time does not know it, and cannot commit."""
        used = Counter(it for one in self.clients.values() if one.id in self.group.members for it in one.owned)
        assert all(count == 1 for count in used.values()), used

    @invariant()
    def members_use_nothing_that_others_may_get(self) -> None:
        for client in self.clients.values():
            member = self.group.members.get(client.id)
            if member is not None and client.epoch:
                assert client.owned <= flat(member.assigned) | flat(member.revoking)

    @invariant()
    def who_is_no_member_does_not_commit(self) -> None:
        for id_, epoch in self.former:
            known = self.group.members.get(id_)
            if epoch and (known is None or known.epoch != epoch):
                assert self.group.check_commit(id_, None, epoch, self.now) is not GroupError.NONE

    @invariant()
    def epochs_are_in_order(self) -> None:
        assert self.stored[0] <= self.group.epoch and self.group.target_epoch <= self.group.epoch
        assert all(it.epoch <= self.group.target_epoch for it in self.group.members.values())

    # ---- where it ends

    def teardown(self) -> None:
        """If nothing happens any more, each partition has exactly one member, and the members agree."""
        if not hasattr(self, "group"):
            return
        self.change_coordinator()
        for _ in range(40):
            for name in ALL_NAMES:
                self.beat(name, loses_answer=False, waits=False)
                self.do_as_assigned(name)
            self.wait(3)
        assert self.group.state is ConsumerGroupState.STABLE
        owned = [it for one in self.clients.values() for it in one.owned]
        subscribed = {name for it in self.group.members.values() for name in it.topics}
        found = [it for name, it in self.topics.items() if name in subscribed]
        assert sorted(owned) == sorted((it.id, number) for it in found for number in range(it.partitions))
        for one in self.clients.values():
            assert self.group.check_commit(one.id, None, one.epoch, self.now) is GroupError.NONE


TestConsumerGroups = ConsumerGroups.TestCase
TestConsumerGroups.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
