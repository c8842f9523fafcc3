"""The state machine of one group of the classic protocol, as Kafka's coordinator has it.

Events come in as calls, with the time. Joins and syncs are answered by ``take_answers``, now or later. The caller
writes ``generation_to_store`` to the filer and then calls ``stored``, or ``store_failed``. No member learns of a
generation before it is stored, so a group whose coordinator changes never uses a number twice.
"""

from __future__ import annotations

from enum import Enum

from smq_core.kafka_groups.group_errors import GroupError
from smq_core.kafka_groups.members import GroupMember, GroupMembers
from smq_core.kafka_groups.requests import (
    Answer,
    GroupSettings,
    JoinAnswer,
    JoinRequest,
    SyncAnswer,
    SyncRequest,
    Ticket,
)
from smq_core.model.entities import Micros


class GroupState(Enum):
    """With the names that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class KafkaGroup:
    """``generation`` is the stored one of a group that begins, or whose coordinator has changed.

    A group has no state "Dead" here: who drops one calls ``end``.
    """

    def __init__(self, settings: GroupSettings, generation: int = 0) -> None:
        self._settings = settings
        self.state = GroupState.EMPTY
        self.generation = generation
        self.members = GroupMembers()
        self.leader: str | None = None
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self._stored_generation = generation
        self._pending: dict[str, Micros] = {}
        """Ids that were given to new members, which have not joined with them, and until when they may."""
        self._unsynced: set[str] = set()
        """Members of this generation that have not asked for their assignment."""
        self._join_deadline: Micros = 0
        self._sync_deadline: Micros = 0
        self._extension_left: Micros | None = None
        """How much longer the first rebalance of a group may wait for more members. None in later ones."""
        self._is_extended = False
        """Whether a member has come since this wait began."""
        self._answers: list[tuple[Ticket, Answer]] = []

    # ---- what the caller looks at

    @property
    def generation_to_store(self) -> int:
        return self.generation + 1 if self.state is GroupState.PREPARING else self.generation

    @property
    def version_to_store(self) -> int:
        return self.generation_to_store

    @property
    def has_to_store(self) -> bool:
        return self.generation_to_store > self._stored_generation

    @property
    def is_idle(self) -> bool:
        """Whether nothing is lost if the group is forgotten here."""
        return self.state is GroupState.EMPTY and not self._pending

    def take_answers(self) -> list[tuple[Ticket, Answer]]:
        answers, self._answers = self._answers, []
        return answers

    def next_deadline(self) -> Micros | None:
        """When ``tick`` has something to do."""
        deadlines = [*self._pending.values()]
        deadlines += [it.deadline for it in self.members.by_id.values() if it.deadline is not None]
        if self.state is GroupState.PREPARING and not self.has_to_store:
            deadlines.append(self._join_deadline)
        if self._unsynced:
            deadlines.append(self._sync_deadline)
        return min(deadlines, default=None)

    # ---- members

    def join(self, ticket: Ticket, request: JoinRequest, now: Micros) -> None:
        error = self._why_not_join(request)
        if error is not GroupError.NONE:
            self._refuse_join(ticket, request.member_id, error)
        elif request.member_id:
            self._join_again(ticket, request, now)
        elif request.instance_id in self.members.by_instance:
            self._replace_static(ticket, request, now)
        elif request.instance_id is None and request.must_know_its_id:
            self._pending[request.new_id] = now + request.session_timeout
            self._refuse_join(ticket, request.new_id, GroupError.MEMBER_ID_REQUIRED)
        else:
            self._add(ticket, request.new_id, request, now)
        self._advance(now)

    def sync(self, ticket: Ticket, request: SyncRequest, now: Micros) -> None:
        error = self._why_not(request.member_id, request.instance_id, request.generation)
        if error is GroupError.NONE:
            error = self._why_not_sync(request)
        if error is not GroupError.NONE:
            self._answers.append((ticket, SyncAnswer(error=error)))
            return
        member = self.members.by_id[request.member_id]
        self._unsynced.discard(member.id)
        if self.state is GroupState.STABLE:
            self._keep_alive(member, now)
            self._answers.append((ticket, self._assignment(member)))
            return
        self._refuse_sync(member, GroupError.REBALANCE_IN_PROGRESS)
        member.sync, member.deadline = ticket, None
        if member.id == self.leader:
            self.state = GroupState.STABLE
            for one in self.members.by_id.values():
                one.assignment = request.assignments.get(one.id, b"")
                if one.sync is not None:
                    self._answers.append((one.sync, self._assignment(one)))
                    one.sync = None
                    self._keep_alive(one, now)

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: Micros) -> GroupError:
        error = self._why_not(member_id, instance_id, generation)
        if error is not GroupError.NONE:
            return error
        self._keep_alive(self.members.by_id[member_id], now)
        return GroupError.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING else GroupError.NONE

    def leave(self, member_id: str, instance_id: str | None, now: Micros) -> GroupError:
        """A static member may be named by its instance id alone, as administrators do."""
        if instance_id is not None and not member_id:
            member_id = self.members.by_instance.get(instance_id, "")
        if instance_id is None and self._pending.pop(member_id, None) is not None:
            self._advance(now)
            return GroupError.NONE
        error = self._who(member_id, instance_id)
        if error is GroupError.NONE:
            self._remove(member_id, now)
            self._advance(now)
        return error

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, now: Micros) -> GroupError:
        """Whether offsets may be committed. Programs without a membership may while the group has no members."""
        if generation < 0 and not member_id and instance_id is None:
            return GroupError.UNKNOWN_MEMBER_ID if len(self.members) else GroupError.NONE
        error = self._why_not(member_id, instance_id, generation)
        if error is not GroupError.NONE:
            return error
        self._keep_alive(self.members.by_id[member_id], now)
        return GroupError.REBALANCE_IN_PROGRESS if self.state is GroupState.COMPLETING else GroupError.NONE

    # ---- time and the filer

    def tick(self, now: Micros) -> list[str]:
        """Removes members that are gone, and completes what has waited long enough. Returns the removed ones."""
        self._pending = {id_: until for id_, until in self._pending.items() if until > now}
        gone = [it.id for it in self.members.by_id.values() if it.deadline is not None and it.deadline <= now]
        if self._unsynced and self._sync_deadline <= now:
            gone += [id_ for id_ in sorted(self._unsynced) if id_ not in gone]
        for id_ in gone:
            self._remove(id_, now)
        self._advance(now)
        return gone

    def stored(self, generation: int, now: Micros) -> None:
        self._stored_generation = max(generation, self._stored_generation)
        self._advance(now)

    def store_failed(self, now: Micros) -> None:
        """The generation could not be stored. Waiting members get an error, after which they join again."""
        if not self.has_to_store:
            return
        for member in list(self.members.by_id.values()):
            if member.join is None:
                continue
            known_id = member.request.member_id
            self._answer_join(member, JoinAnswer(error=GroupError.COORDINATOR_NOT_AVAILABLE, member_id=known_id), now)
            if member.is_new and not known_id:
                self._remove(member.id, now)  # nobody knows its id

    def end(self, error: GroupError) -> None:
        """Answers everybody who waits. The group must not be used afterwards."""
        for member in self.members.by_id.values():
            self._refuse_waiting(member, error)

    # ---- joining

    def _why_not_join(self, request: JoinRequest) -> GroupError:
        limits = self._settings
        if not limits.min_session_timeout <= request.session_timeout <= limits.max_session_timeout:
            return GroupError.INVALID_SESSION_TIMEOUT
        if not request.protocol_type or not request.protocols:
            return GroupError.INCONSISTENT_GROUP_PROTOCOL
        if request.member_id and (request.member_id not in self._pending or request.instance_id is not None):
            error = self._who(request.member_id, request.instance_id)
            if error is not GroupError.NONE:
                return error
        if len(self.members) and not (
            request.protocol_type == self.protocol_type and self.members.support_one_of(request.protocols)
        ):
            return GroupError.INCONSISTENT_GROUP_PROTOCOL
        is_more = request.member_id not in self.members.by_id and request.instance_id not in self.members.by_instance
        waiting = len(self._pending) - (request.member_id in self._pending)
        if (is_more and len(self.members) + waiting >= limits.max_members) or (
            self.members.metadata_bytes() + request.size_bytes > limits.max_metadata_bytes
        ):
            return GroupError.GROUP_MAX_SIZE_REACHED
        return GroupError.NONE

    def _join_again(self, ticket: Ticket, request: JoinRequest, now: Micros) -> None:
        """A join with a member's id: to begin, because a rebalance is in progress, or to cause one."""
        if self._pending.pop(request.member_id, None) is not None:
            self._add(ticket, request.member_id, request, now)
            return
        member = self.members.by_id[request.member_id]
        is_same = request.protocols == member.request.protocols
        is_known = self.state is GroupState.COMPLETING or (self.state is GroupState.STABLE and member.id != self.leader)
        if is_known and is_same:  # it has not received the answer
            member.request = request
            self._keep_alive(member, now)
            self._answers.append((ticket, self._joined(member)))
            return
        self._wait_for_generation(member, ticket, request, now)

    def _add(self, ticket: Ticket, id_: str, request: JoinRequest, now: Micros) -> None:
        member = GroupMember(id=id_, request=request)
        self.protocol_type = request.protocol_type
        self.members.add(member)
        self._is_extended = True
        self._wait_for_generation(member, ticket, request, now)

    def _replace_static(self, ticket: Ticket, request: JoinRequest, now: Micros) -> None:
        """A static member has begun anew: it gets another id, and its former process is fenced."""
        former = self.members.remove(self.members.by_instance[request.instance_id or ""])
        self._refuse_waiting(former, GroupError.FENCED_INSTANCE_ID)
        member = GroupMember(id=request.new_id, request=request, is_new=former.is_new, assignment=former.assignment)
        self.members.add(member)
        was_leader, leader = former.id == self.leader, self.leader
        if was_leader:
            self.leader = member.id
        if former.id in self._unsynced:
            self._unsynced.remove(former.id)
            self._unsynced.add(member.id)
        if self.state is not GroupState.STABLE or self.members.elect_protocol() != self.protocol:
            self._wait_for_generation(member, ticket, request, now)
            return
        # It continues with the assignment of its former process. One that would assign when it is the leader, because
        # it does not know that the assignment stays, gets the former id as the leader's.
        self._keep_alive(member, now)
        answer = self._joined(member, skip_assignment=was_leader)
        if was_leader and not request.may_skip_assignment:
            answer = self._joined(member, leader=leader, members=False)
        self._answers.append((ticket, answer))

    def _wait_for_generation(self, member: GroupMember, ticket: Ticket, request: JoinRequest, now: Micros) -> None:
        if member.join is not None:
            self._refuse_join(member.join, member.id, GroupError.REBALANCE_IN_PROGRESS)
        self._refuse_sync(member, GroupError.REBALANCE_IN_PROGRESS)
        member.join, member.request = ticket, request
        member.deadline = now + self._settings.new_member_timeout if member.is_new else None
        self._prepare(now)

    # ---- rebalances

    def _prepare(self, now: Micros) -> None:
        """Begins a rebalance, if none is in progress."""
        if self.state is GroupState.PREPARING:
            return
        timeout = self.members.rebalance_timeout()
        self._extension_left = None
        if self.state is GroupState.EMPTY:
            delay = self._settings.initial_rebalance_delay
            self._extension_left, self._is_extended = max(timeout - delay, 0), False
            timeout = delay
        self._join_deadline = now + timeout
        self._unsynced.clear()
        self.state = GroupState.PREPARING
        for member in self.members.by_id.values():
            if member.sync is not None:
                self._refuse_sync(member, GroupError.REBALANCE_IN_PROGRESS)
                self._keep_alive(member, now)

    def _advance(self, now: Micros) -> None:
        """Completes the rebalance if all members have joined, or after its time; the first one after its delay."""
        if self.state is not GroupState.PREPARING or self.has_to_store:
            return
        if now < self._join_deadline:
            is_complete = not self._pending and all(it.join is not None for it in self.members.by_id.values())
            if len(self.members) and (self._extension_left is not None or not is_complete):
                return
        elif self._extension_left and self._is_extended:
            delay = min(self._settings.initial_rebalance_delay, self._extension_left)
            self._extension_left -= delay
            self._join_deadline, self._is_extended = now + delay, False
            if delay:
                return
        self._complete(now)

    def _complete(self, now: Micros) -> None:
        for member in list(self.members.by_id.values()):
            if member.join is None and member.instance_id is None:
                self.members.remove(member.id)
        joined = [it for it in self.members.by_id.values() if it.join is not None]
        if len(self.members) and not joined:  # static members, which may come back until their sessions end
            self._join_deadline = now + self.members.rebalance_timeout()
            return
        self.generation += 1
        if not joined:
            self.state, self.leader, self.protocol = GroupState.EMPTY, None, None
            return
        self.state = GroupState.COMPLETING
        self.protocol = self.members.elect_protocol()
        if self.leader not in {it.id for it in joined}:
            self.leader = joined[0].id
        self._unsynced = {it.id for it in joined}
        self._sync_deadline = now + self.members.rebalance_timeout()
        for member in self.members.by_id.values():
            member.assignment = b""
        for member in joined:
            member.is_new = False
            self._answer_join(member, self._joined(member), now)

    def _remove(self, id_: str, now: Micros) -> None:
        """What follows for the rebalance is decided by ``_advance``."""
        member = self.members.remove(id_)
        self._unsynced.discard(id_)
        self._refuse_waiting(member, GroupError.UNKNOWN_MEMBER_ID)
        self._prepare(now)

    # ---- checks

    def _who(self, member_id: str, instance_id: str | None) -> GroupError:
        if instance_id is not None:
            known = self.members.by_instance.get(instance_id)
            if known is not None and known != member_id:
                return GroupError.FENCED_INSTANCE_ID
            if known is None:
                return GroupError.UNKNOWN_MEMBER_ID
        return GroupError.NONE if member_id in self.members.by_id else GroupError.UNKNOWN_MEMBER_ID

    def _why_not(self, member_id: str, instance_id: str | None, generation: int) -> GroupError:
        error = self._who(member_id, instance_id)
        if error is not GroupError.NONE:
            return error
        return GroupError.NONE if generation == self.generation else GroupError.ILLEGAL_GENERATION

    def _why_not_sync(self, request: SyncRequest) -> GroupError:
        if self.state is GroupState.PREPARING:
            return GroupError.REBALANCE_IN_PROGRESS
        if request.protocol_type not in (None, self.protocol_type) or request.protocol_name not in (
            None,
            self.protocol,
        ):
            return GroupError.INCONSISTENT_GROUP_PROTOCOL
        if sum(map(len, request.assignments.values())) > self._settings.max_assignment_bytes:
            return GroupError.UNKNOWN_SERVER_ERROR
        return GroupError.NONE

    # ---- answers

    def _keep_alive(self, member: GroupMember, now: Micros) -> None:
        if member.join is None and member.sync is None:
            member.deadline = now + member.request.session_timeout

    def _joined(
        self,
        member: GroupMember,
        *,
        skip_assignment: bool = False,
        leader: str | None = None,
        members: bool = True,
    ) -> JoinAnswer:
        is_leader = member.id == self.leader
        return JoinAnswer(
            error=GroupError.NONE,
            member_id=member.id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=leader or self.leader or "",
            skip_assignment=skip_assignment,
            members=self.members.described(self.protocol) if is_leader and members else (),
        )

    def _assignment(self, member: GroupMember) -> SyncAnswer:
        return SyncAnswer(
            error=GroupError.NONE,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            assignment=member.assignment,
        )

    def _answer_join(self, member: GroupMember, answer: JoinAnswer, now: Micros) -> None:
        if member.join is not None:
            self._answers.append((member.join, answer))
        member.join = None
        self._keep_alive(member, now)

    def _refuse_join(self, ticket: Ticket, member_id: str, error: GroupError) -> None:
        self._answers.append((ticket, JoinAnswer(error=error, member_id=member_id)))

    def _refuse_sync(self, member: GroupMember, error: GroupError) -> None:
        if member.sync is not None:
            self._answers.append((member.sync, SyncAnswer(error=error)))
        member.sync = None

    def _refuse_waiting(self, member: GroupMember, error: GroupError) -> None:
        if member.join is not None:
            self._refuse_join(member.join, member.id, error)
            member.join = None
        self._refuse_sync(member, error)
