"""Any history of members, commits, writes, seals and time: the promises of a consumer group hold at every step."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from smq_core.errors import StaleGeneration
from smq_core.reading.consumer_group import HANDOVER_TIMEOUT, MEMBER_TIMEOUT, Group
from smq_core.reading.segment_dag import SegmentNode

MEMBERS = ["a", "b", "c"]


@dataclass
class GroupClient:
    """A correct member: it reads what it is assigned, and stops reading before it confirms a release."""

    generation: int | None = None
    reading: dict[str, int] = field(default_factory=dict)
    last_heartbeat_at: int = 0


class Groups(RuleBasedStateMachine):
    @initialize(count=st.integers(2, 4))
    def begin(self, count: int) -> None:
        self.now = 0
        self.nodes = {f"s{i}": SegmentNode(f"s{i}", ()) for i in range(count)}
        self.made = count
        self.group = Group(name="g")
        self.group.update(self.nodes, 0)
        self.clients: dict[str, GroupClient] = {}
        self.durable: dict[str, int] = {}
        self.owned: dict[tuple[int, str], str] = {}

    # ---- what may happen

    @rule(name=st.sampled_from(MEMBERS))
    def joins(self, name: str) -> None:
        self.join(name, answered=True)

    @rule(name=st.sampled_from(MEMBERS))
    def joins_and_loses_the_answer(self, name: str) -> None:
        self.join(name, answered=False)

    def join(self, name: str, *, answered: bool) -> None:
        client = self.clients.setdefault(name, GroupClient())
        if name not in self.group.members:
            client.generation, client.reading = None, {}
        joined = self.group.join(name, self.now, client.generation)
        client.last_heartbeat_at = self.now
        if answered:
            client.generation = joined.generation
            client.reading = {s: max(p, client.reading.get(s, 0)) for s, p in joined.positions.items()}

    @rule(name=st.sampled_from(MEMBERS))
    def leave(self, name: str) -> None:
        self.group.leave(name, self.now)
        self.clients.pop(name, None)

    @rule(name=st.sampled_from(MEMBERS), ahead=st.integers(1, 5))
    def read_and_commit(self, name: str, ahead: int) -> None:
        client = self.clients.get(name)
        if client is None or client.generation is None or not client.reading:
            return
        for segment in client.reading:
            end = self.nodes[segment].end
            position = client.reading[segment] + ahead
            client.reading[segment] = position if end is None else min(position, end)
        try:
            self.group.commit(name, client.generation, dict(client.reading))
        except StaleGeneration:
            client.reading = {}

    @precondition(lambda self: self.group.pending and not self.group.in_flight)
    @rule()
    def write(self) -> None:
        self.group.begin_flush()

    @precondition(lambda self: self.group.in_flight)
    @rule(fails=st.booleans())
    def written(self, fails: bool) -> None:
        if fails:
            self.group.flush_failed()
        else:
            self.group.flushed(self.now)

    @rule(pick=st.integers(0, 10), parts=st.integers(1, 3))
    def seal(self, pick: int, parts: int) -> None:
        living = [n for n in self.nodes.values() if n.end is None]
        node = living[pick % len(living)]
        read = max([c.reading.get(node.name, 0) for c in self.clients.values()] + [0])
        taken = max(self.group.pending.get(node.name, 0), self.group.in_flight.get(node.name, 0))
        end = max(read, taken, self.group.positions.get(node.name, 0)) + pick % 3
        self.nodes[node.name] = SegmentNode(node.name, node.predecessors, end)
        for _ in range(parts):
            name = f"s{self.made}"
            self.made += 1
            self.nodes[name] = SegmentNode(name, (node.name,))
        self.group.update(self.nodes, self.now)

    @rule(passed=st.sampled_from([1, 1_000_000, HANDOVER_TIMEOUT, MEMBER_TIMEOUT + 1]))
    def time_passes(self, passed: int) -> None:
        self.now += passed
        before = dict(self.group.handovers)
        for name in self.group.expire(self.now):
            self.clients.pop(name, None)
        for segment, handover in before.items():
            # It had its time: whatever it still reads will be read twice.
            if segment not in self.group.handovers and handover.ownership.member in self.clients:
                self.clients[handover.ownership.member].reading.pop(segment, None)

    # ---- what must hold

    @invariant()
    def within_a_generation_no_segment_has_two_owners(self) -> None:
        for segment, member in self.group.assignment.items():
            assert self.owned.setdefault((self.group.generation, segment), member) == member

    @invariant()
    def no_two_members_read_one_segment(self) -> None:
        reading = [segment for client in self.clients.values() for segment in client.reading]
        living = [segment for segment in reading if not self.group.reader.is_read(segment)]
        assert len(living) == len(set(living)), self.clients

    @invariant()
    def nobody_else_may_commit_what_somebody_owns(self) -> None:
        assert not self.group.owners.keys() & self.group.handovers.keys()

    @invariant()
    def none_is_owned_before_its_predecessors_are_committed_to_their_ends(self) -> None:
        for segment in self.group.assignment:
            for before in self.nodes[segment].predecessors:
                end = self.nodes[before].end
                read = self.group.positions.get(before, 0)
                assert end is not None and (read >= end or self._implied(before)), (segment, before)

    def _implied(self, segment: str) -> bool:
        """A later position says that it was read; or it holds nothing and all before it was read."""
        return self.group.reader.is_read(segment)

    @invariant()
    def commits_never_go_back(self) -> None:
        for segment, offset in self.durable.items():
            assert self.group.positions.get(segment, 0) >= offset
        self.durable = dict(self.group.positions)

    @invariant()
    def members_differ_by_at_most_one_when_nothing_is_on_its_way(self) -> None:
        group = self.group
        if group.members and not (group.handovers or group.pending or group.in_flight):
            counts = [list(group.assignment.values()).count(m) for m in group.members]
            assert max(counts) - min(counts) <= 1


Groups.TestCase.settings = settings(max_examples=400, stateful_step_count=40, deadline=None)
TestGroups = Groups.TestCase
