"""Any history of members, time, writes and changes of the coordinator: the promises of a Kafka group hold."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from smq_core.kafka_groups.group import GroupState, KafkaGroup
from smq_core.kafka_groups.group_errors import GroupError
from smq_core.kafka_groups.requests import GroupSettings, JoinAnswer, JoinRequest, Protocol, SyncAnswer, SyncRequest
from smq_core.model.entities import SECOND

SETTINGS = GroupSettings(max_members=6)
SESSION, REBALANCE = 6 * SECOND, 20 * SECOND
NAMES = st.sampled_from(["a", "b", "c", "d"])


class Client:
    """A member of that name. ``id`` and ``generation`` are what it was answered."""

    def __init__(self, name: str, *, static: bool, gets_id_first: bool) -> None:
        self.instance = f"i-{name}" if static else None
        self.gets_id_first = gets_id_first
        self.id = ""
        self.generation = -1
        self.last_sign = 0


class KafkaGroups(RuleBasedStateMachine):
    @initialize(static=st.sets(NAMES), with_id=st.sets(NAMES))
    def begin(self, static: set[str], with_id: set[str]) -> None:
        self.now = self.ids = self.tickets = 0
        self.stored = 0
        self.group = KafkaGroup(SETTINGS)
        self.clients = {
            name: Client(name, static=name in static, gets_id_first=name in with_id) for name in ("a", "b", "c", "d")
        }
        self.joins: dict[int, tuple[str, int]] = {}
        """Those that wait: who, and since when."""
        self.syncs: dict[int, tuple[str, int]] = {}
        """Those that wait: who, and in which generation."""
        self.given: dict[int, dict[str, bytes]] = {}
        """What the leader of each generation has assigned."""
        self.known: dict[int, dict[str, str]] = {}
        """The protocol and leader that the members of each generation were answered."""

    # ---- what may happen

    @rule(name=NAMES)
    def join(self, name: str) -> None:
        client = self.clients[name]
        self.ids, self.tickets = self.ids + 1, self.tickets + 1
        self.joins[self.tickets] = name, self.now
        client.last_sign = self.now
        request = JoinRequest(
            member_id=client.id,
            new_id=f"{name}-{self.ids}",
            protocol_type="consumer",
            protocols=(Protocol("range", b""),),
            session_timeout=SESSION,
            rebalance_timeout=REBALANCE,
            instance_id=client.instance,
            must_know_its_id=client.gets_id_first,
        )
        self.group.join(self.tickets, request, self.now)
        self.take()

    @rule(name=NAMES)
    def begin_anew(self, name: str) -> None:
        """The program was killed, and forgets what it was answered."""
        self.clients[name].id, self.clients[name].generation = "", -1

    @rule(name=NAMES)
    def sync(self, name: str) -> None:
        client = self.clients[name]
        self.tickets += 1
        self.syncs[self.tickets] = client.id, client.generation
        client.last_sign = self.now
        known = self.known.get(client.generation, {})
        assignments = {}
        if known.get("leader") == client.id:
            assignments = {it: f"{it}@{client.generation}".encode() for it in self.group.members.by_id}
            if self.group.state is GroupState.COMPLETING and self.group.generation == client.generation:
                self.given.setdefault(client.generation, assignments)
        self.group.sync(
            self.tickets,
            SyncRequest(
                member_id=client.id,
                generation=client.generation,
                instance_id=client.instance,
                assignments=assignments,
            ),
            self.now,
        )
        self.take()

    @rule(name=NAMES)
    def heartbeat(self, name: str) -> None:
        client = self.clients[name]
        error = self.group.heartbeat(client.id, client.instance, client.generation, self.now)
        if error in (GroupError.NONE, GroupError.REBALANCE_IN_PROGRESS):
            client.last_sign = self.now
        self.take()

    @rule(name=NAMES)
    def leave(self, name: str) -> None:
        client = self.clients[name]
        self.group.leave(client.id, client.instance, self.now)
        self.take()

    @rule(seconds=st.integers(1, 8))
    def wait(self, seconds: int) -> None:
        self.now += seconds * SECOND
        self.group.tick(self.now)
        self.take()

    @precondition(lambda self: self.group.has_to_store)
    @rule(succeeds=st.booleans())
    def store(self, succeeds: bool) -> None:
        if succeeds:
            self.stored = self.group.generation_to_store
            self.group.stored(self.stored, self.now)
        else:
            self.group.store_failed(self.now)
        self.take()

    @rule()
    def change_coordinator(self) -> None:
        self.group.end(GroupError.NOT_COORDINATOR)
        self.take()
        assert not self.joins and not self.syncs, "nobody answers these any more"
        self.group = KafkaGroup(SETTINGS, self.stored)

    # ---- what clients are answered

    def take(self) -> None:
        for ticket, answer in self.group.take_answers():
            if isinstance(answer, JoinAnswer):
                self.joined(*self.joins.pop(ticket), answer)
            else:
                self.synced(*self.syncs.pop(ticket), answer)

    def joined(self, name: str, since: int, answer: JoinAnswer) -> None:
        client = self.clients[name]
        client.last_sign = self.now
        if answer.error is GroupError.MEMBER_ID_REQUIRED:
            client.id = answer.member_id
        elif answer.error in (GroupError.UNKNOWN_MEMBER_ID, GroupError.FENCED_INSTANCE_ID):
            client.id = ""
        if answer.error is not GroupError.NONE:
            return
        assert answer.generation <= self.stored, "a generation that is not stored could come again"
        assert answer.generation >= client.generation or client.id != answer.member_id
        client.id, client.generation = answer.member_id, answer.generation
        answered = {"protocol": answer.protocol_name or ""}
        if answer.members and not answer.skip_assignment:
            assert answer.leader == answer.member_id
            answered["leader"] = answer.member_id
        before = self.known.setdefault(answer.generation, answered)
        assert before["protocol"] == answered["protocol"]
        before.update(answered)

    def synced(self, member: str, generation: int, answer: SyncAnswer) -> None:
        if answer.error is GroupError.NONE:
            given = self.given[generation]
            # A static member that began anew has the assignment of its former process.
            same = [it for it in given if it.split("-")[0] == member.split("-")[0]]
            assert answer.assignment in {given[it] for it in same} | ({b""} if member not in given else set())

    # ---- what always holds

    @invariant()
    def members_without_a_sign_are_gone(self) -> None:
        waits = {name for name, _ in self.joins.values()} | {m.split("-")[0] for m, _ in self.syncs.values()}
        for name, client in self.clients.items():
            if name not in waits and self.now - client.last_sign > SESSION:
                assert client.id not in self.group.members.by_id

    @invariant()
    def what_is_owed_has_a_deadline(self) -> None:
        if self.joins or self.syncs:
            assert self.group.has_to_store or self.group.next_deadline() is not None

    @invariant()
    def no_join_waits_longer_than_a_rebalance_may_take(self) -> None:
        for _, since in self.joins.values():
            longest = SETTINGS.initial_rebalance_delay + REBALANCE + 8 * SECOND
            assert self.group.has_to_store or self.now - since <= longest + REBALANCE


TestKafkaGroups = KafkaGroups.TestCase
TestKafkaGroups.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
