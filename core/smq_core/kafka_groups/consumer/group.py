"""The state machine of a group whose coordinator assigns the partitions (KIP-848).

Events come in as calls, with the time. Heartbeats are answered by ``take_answers``, now or later. The caller writes
``generation_to_store`` and ``members_to_store`` to the filer and then calls ``stored``, or ``store_failed``. No member
learns of a change before it is stored, so the next coordinator continues with everything that members know.

Each change of members, subscriptions or topics leads to a new epoch of the group, with a new target for each member.
Heartbeats then lead each member to its target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum

from smq_core.kafka_groups.consumer.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, Subscriber
from smq_core.kafka_groups.consumer.heartbeats import HeartbeatAnswer, HeartbeatRefused, HeartbeatRequest
from smq_core.kafka_groups.consumer.member import (
    JOINING,
    LEAVING_FOR_NOW,
    ConsumerMember,
    MemberState,
)
from smq_core.kafka_groups.consumer.partitions import Partitions, TopicPartition, TopicSize, flat
from smq_core.kafka_groups.consumer.reconciliation import reconcile
from smq_core.kafka_groups.group_errors import GroupError
from smq_core.kafka_groups.requests import GroupSettings, Ticket
from smq_core.model.entities import Micros


class ConsumerGroupState(Enum):
    """With the names that Kafka's tools show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerGroup:
    """``generation`` and ``members`` are the stored ones of a group whose coordinator has changed, at ``now``."""

    protocol_type: str | None = "consumer"

    def __init__(
        self,
        settings: GroupSettings,
        generation: int = 0,
        *,
        members: Iterable[ConsumerMember] = (),
        now: Micros = 0,
    ) -> None:
        self._settings = settings
        self.epoch = generation
        self.members: dict[str, ConsumerMember] = {}
        self.target: dict[str, Partitions] = {}
        self.target_epoch = generation
        self.topics: dict[str, TopicSize | None] = {}
        """What the names of subscriptions stand for; None if there is no such topic."""
        self._topics_seen_at: Micros = now
        self._matched_at: dict[str, Micros] = {}
        """When the topics of a member's pattern were looked for."""
        self._subscribed: frozenset[str] | None = None
        """The topics of all members; None if they have to be put together."""
        self._by_instance: dict[str, str] = {}
        self._holders: dict[TopicPartition, str] = {}
        """The member that a partition is assigned to, or that has not given it up."""
        self._session_deadlines: dict[str, Micros] = {}
        self._rebalance_deadlines: dict[str, Micros] = {}
        self._version = self._stored_version = 0
        self._held: list[tuple[int, Ticket, HeartbeatAnswer]] = []
        """Answers that wait until this version is stored."""
        self._unsure: set[str] = set()
        """Members that may not know their assignment."""
        self._answers: list[tuple[Ticket, HeartbeatAnswer]] = []
        for member in members:
            self._put(member)
            self.target[member.id] = flat(member.assigned)
            self._session_deadlines[member.id] = now + settings.consumer_session_timeout
            if member.state is MemberState.UNREVOKED:
                self._rebalance_deadlines[member.id] = now + member.rebalance_timeout
        if self.members:
            self._begin_epoch()  # targets are not stored

    # ---- what the caller looks at

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.target_epoch < self.epoch:
            return ConsumerGroupState.ASSIGNING
        if all(it.is_reconciled(self.target_epoch) for it in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def assignor(self) -> str:
        """The one that most members prefer."""
        votes = Counter(it.assignor for it in self.members.values() if it.assignor is not None)
        return max(sorted(votes), key=lambda name: votes[name], default=DEFAULT_ASSIGNOR)

    @property
    def generation_to_store(self) -> int:
        return self.epoch

    @property
    def members_to_store(self) -> tuple[ConsumerMember, ...]:
        return tuple(self.members.values())

    @property
    def version_to_store(self) -> int:
        return self._version

    @property
    def has_to_store(self) -> bool:
        return self._version > self._stored_version

    @property
    def is_idle(self) -> bool:
        """Whether nothing is lost if the group is forgotten here."""
        return not self.members and not self.has_to_store

    def subscribed(self) -> frozenset[str]:
        """The names of all topics that members subscribe to."""
        if self._subscribed is None:
            self._subscribed = frozenset(name for it in self.members.values() for name in it.topics)
        return self._subscribed

    def take_answers(self) -> list[tuple[Ticket, HeartbeatAnswer]]:
        answers, self._answers = self._answers, []
        return answers

    def next_deadline(self) -> Micros | None:
        """When ``tick`` has something to do."""
        return min((*self._session_deadlines.values(), *self._rebalance_deadlines.values()), default=None)

    # ---- what a heartbeat needs to know of topics

    def pattern_to_match(self, request: HeartbeatRequest, now: Micros) -> str:
        """The pattern whose topics have to be looked for, or an empty one."""
        if request.pattern is not None or request.leaves:
            return "" if request.leaves else request.pattern or ""
        member = self.members.get(request.member_id)
        if member is None or now - self._matched_at.get(member.id, 0) < self._settings.topic_refresh_interval:
            return ""
        return member.pattern

    def names_to_find(self, request: HeartbeatRequest, now: Micros) -> frozenset[str]:
        """The names that have to be looked for: those that are not known, and now and then all of them.

        Raises HeartbeatRefused.
        """
        names = self._names_with(request)
        if len(names) > self._settings.max_topics:
            raise HeartbeatRefused(
                GroupError.GROUP_MAX_SIZE_REACHED, f"a group subscribes to {self._settings.max_topics} topics at most"
            )
        if now - self._topics_seen_at >= self._settings.topic_refresh_interval:
            return names
        return names - self.topics.keys()

    def _names_with(self, request: HeartbeatRequest) -> frozenset[str]:
        return self.subscribed().union(request.names or (), request.matched or ())

    # ---- events

    def heartbeat(
        self, ticket: Ticket, request: HeartbeatRequest, topics: Mapping[str, TopicSize | None], now: Micros
    ) -> None:
        """``topics`` are those that were looked for."""
        self._see(topics, now)
        try:
            request.check()
            answer = self._leave(request) if request.leaves else self._beat(request, now)
        except HeartbeatRefused as refused:
            self._assign()
            self._answers.append((ticket, _refused(request, refused.error, refused.message)))
            return
        self._assign()
        self._held.append((self._version, ticket, answer))
        self._release()

    def check_commit(self, member_id: str, instance_id: str | None, epoch: int, now: Micros) -> GroupError:
        """Whether offsets may be committed. Programs without a membership may while the group has no members."""
        if epoch < 0 and not self.members:
            return GroupError.NONE
        return self.check_fetch(member_id, epoch)

    def check_fetch(self, member_id: str, epoch: int) -> GroupError:
        """Whether this member may get offsets."""
        member = self.members.get(member_id)
        if member is None:
            return GroupError.UNKNOWN_MEMBER_ID
        return GroupError.NONE if epoch == member.epoch else GroupError.STALE_MEMBER_EPOCH

    def tick(self, now: Micros) -> list[str]:
        """Removes members that are gone, and those that have not given up partitions in time. Returns their ids."""
        gone = [
            id_
            for id_ in self.members
            if self._session_deadlines[id_] <= now or self._rebalance_deadlines.get(id_, now + 1) <= now
        ]
        for id_ in gone:
            self._remove(id_)
        self._assign()
        return gone

    def stored(self, version: int, now: Micros) -> None:
        self._stored_version = max(version, self._stored_version)
        self._release()

    def store_failed(self, now: Micros) -> None:
        """Waiting members get an error, after which they repeat their heartbeat."""
        self._refuse_held(GroupError.COORDINATOR_NOT_AVAILABLE)

    def end(self, error: GroupError) -> None:
        """Answers everybody who waits. The group must not be used afterwards."""
        self._refuse_held(error)

    # ---- a heartbeat

    def _beat(self, request: HeartbeatRequest, now: Micros) -> HeartbeatAnswer:
        self._check_subscription(request)
        before = self.members.get(request.member_id)
        member = self._joining(request) if request.epoch == JOINING else self._known(request)
        former_topics = member.topics if request.member_id in self.members else None
        member = self._updated(member, request)
        if request.matched is not None:
            self._matched_at[member.id] = now
        self._put(member)
        if member.topics != former_topics:
            self._begin_epoch()
        self._assign()
        member = reconcile(
            member,
            target=self.target.get(member.id, frozenset()),
            target_epoch=self.target_epoch,
            holder=self._holders.get,
            owned=request.owned,
        )
        self._put(member)
        self._session_deadlines[member.id] = now + self._settings.consumer_session_timeout
        self._limit_rebalance(before, member, now)
        has_other = before is None or before.assigned != member.assigned or request.epoch != before.epoch
        is_shown = request.says_all or has_other or member.id in self._unsure
        self._unsure.discard(member.id)
        return HeartbeatAnswer(
            error=GroupError.NONE,
            member_id=member.id,
            epoch=member.epoch,
            heartbeat_interval=self._settings.consumer_heartbeat_interval,
            assignment=member.assigned if is_shown else None,
        )

    def _check_subscription(self, request: HeartbeatRequest) -> None:
        if not self._names_with(request) <= self.topics.keys():
            raise HeartbeatRefused(GroupError.COORDINATOR_LOAD_IN_PROGRESS, "topics have to be looked for: repeat this")
        if request.names is None and request.pattern is None and request.matched is None:
            return
        others = sum(it.size_bytes for it in self.members.values() if it.id != request.member_id)
        names = (request.names or frozenset()) | (request.matched or frozenset())
        if others + sum(map(len, names)) + len(request.pattern or "") > self._settings.max_metadata_bytes:
            raise HeartbeatRefused(GroupError.GROUP_MAX_SIZE_REACHED, "the subscriptions of the group are too large")

    def _joining(self, request: HeartbeatRequest) -> ConsumerMember:
        """The member that joins: a new one, or one that has given up all that it had."""
        known = self.members.get(request.member_id)
        static = self.members.get(self._by_instance.get(request.instance_id or "", ""))
        if known is not None and known.instance_id != request.instance_id:
            raise HeartbeatRefused(GroupError.INVALID_REQUEST, f"member {known.id} has another InstanceId.")
        if static is not None and static is not known:
            if static.epoch != LEAVING_FOR_NOW:
                raise HeartbeatRefused(
                    GroupError.UNRELEASED_INSTANCE_ID,
                    f"instance {request.instance_id} is in use by member {static.id}: it has to end first",
                )
            self._hand_over(static, request.member_id)
            known = self.members[request.member_id]
        if known is not None:
            return replace(known, epoch=JOINING, previous_epoch=JOINING, state=MemberState.STABLE, revoking={})
        if len(self.members) >= self._settings.max_members:
            raise HeartbeatRefused(
                GroupError.GROUP_MAX_SIZE_REACHED, f"the group has {len(self.members)} members, the most that it may"
            )
        return ConsumerMember(id=request.member_id)

    def _known(self, request: HeartbeatRequest) -> ConsumerMember:
        member = self._member(request)
        if request.epoch == member.epoch:
            return member
        # The answer with the epoch of now may be lost. Then the member has no more than it had before.
        is_behind = request.epoch == member.previous_epoch < member.epoch
        if not is_behind or request.owned is None or not request.owned <= flat(member.assigned):
            raise HeartbeatRefused(
                GroupError.FENCED_MEMBER_EPOCH,
                f"member {member.id} has epoch {member.epoch}, not {request.epoch}: it must abandon all its partitions "
                "and join again",
            )
        return member

    def _leave(self, request: HeartbeatRequest) -> HeartbeatAnswer:
        member = self._member(request)
        if request.epoch == LEAVING_FOR_NOW:
            # Its partitions stay its own until its session ends.
            away = replace(member, epoch=LEAVING_FOR_NOW, state=MemberState.STABLE, revoking={})
            self._put(away)
            self._rebalance_deadlines.pop(member.id, None)
        else:
            self._remove(member.id)
        return HeartbeatAnswer(error=GroupError.NONE, member_id=member.id, epoch=request.epoch)

    def _member(self, request: HeartbeatRequest) -> ConsumerMember:
        id_ = request.member_id
        if request.instance_id is not None:
            id_ = self._by_instance.get(request.instance_id, "")
            if id_ and id_ != request.member_id:
                raise HeartbeatRefused(
                    GroupError.FENCED_INSTANCE_ID, f"instance {request.instance_id} is member {id_} now"
                )
        if id_ not in self.members:
            raise HeartbeatRefused(GroupError.UNKNOWN_MEMBER_ID, f"{request.member_id} is no member of the group")
        return self.members[id_]

    @staticmethod
    def _updated(member: ConsumerMember, request: HeartbeatRequest) -> ConsumerMember:
        pattern = member.pattern if request.pattern is None else request.pattern
        matched = member.matched if request.matched is None else request.matched
        return replace(
            member,
            instance_id=member.instance_id if request.instance_id is None else request.instance_id,
            rack_id=member.rack_id if request.rack_id is None else request.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout=member.rebalance_timeout
            if request.rebalance_timeout is None
            else request.rebalance_timeout,
            assignor=member.assignor if request.assignor is None else request.assignor,
            names=member.names if request.names is None else request.names,
            pattern=pattern,
            matched=matched if pattern else frozenset(),
        )

    def _limit_rebalance(self, before: ConsumerMember | None, member: ConsumerMember, now: Micros) -> None:
        """A member has its rebalance timeout to give up partitions, anew for each epoch."""
        if member.state is not MemberState.UNREVOKED:
            self._rebalance_deadlines.pop(member.id, None)
        elif before is None or before.state is not MemberState.UNREVOKED or before.epoch != member.epoch:
            self._rebalance_deadlines[member.id] = now + member.rebalance_timeout

    # ---- targets

    def _see(self, topics: Mapping[str, TopicSize | None], now: Micros) -> None:
        """A topic that is new, has other partitions, or is gone leads to other targets."""
        if self.subscribed() <= topics.keys():
            self._topics_seen_at = now
        is_changed = any(name in self.topics and self.topics[name] != it for name, it in topics.items())
        self.topics = {**self.topics, **topics}
        if is_changed:
            self._begin_epoch()

    def _begin_epoch(self) -> None:
        self.epoch += 1
        self._version += 1

    def _assign(self) -> None:
        """Makes the targets of this epoch, once all topics are known."""
        subscribed = self.subscribed()
        if self.target_epoch == self.epoch or not subscribed <= self.topics.keys():
            return
        self.topics = {name: self.topics[name] for name in subscribed}
        subscribers: list[Subscriber] = []
        sizes: dict[str, int] = {}
        for member in self.members.values():
            found = [it for name in member.topics if (it := self.topics[name]) is not None]
            sizes.update(found)
            subscribers.append(Subscriber(member.id, member.instance_id, frozenset(it.id for it in found)))
        self.target = ASSIGNORS[self.assignor](subscribers, sizes, self.target)
        self.target_epoch = self.epoch

    # ---- members

    def _put(self, member: ConsumerMember) -> None:
        before = self.members.get(member.id)
        if member == before:
            return
        if before is not None:
            self._let_go(before)
        self.members[member.id] = member
        if before is None or before.topics != member.topics:
            self._subscribed = None
        for at in flat(member.assigned) | flat(member.revoking):
            self._holders[at] = member.id
        if member.instance_id is not None:
            self._by_instance[member.instance_id] = member.id
        self._version += 1

    def _let_go(self, member: ConsumerMember) -> None:
        for at in flat(member.assigned) | flat(member.revoking):
            if self._holders.get(at) == member.id:
                del self._holders[at]

    def _remove(self, id_: str) -> None:
        self._forget(id_)
        self.target.pop(id_, None)
        self._begin_epoch()

    def _forget(self, id_: str) -> None:
        member = self.members.pop(id_)
        self._subscribed = None
        self._let_go(member)
        if member.instance_id is not None and self._by_instance.get(member.instance_id) == id_:
            del self._by_instance[member.instance_id]
        for deadlines in (self._session_deadlines, self._rebalance_deadlines, self._matched_at):
            deadlines.pop(id_, None)
        self._unsure.discard(id_)

    def _hand_over(self, former: ConsumerMember, id_: str) -> None:
        """A static member begins anew, with another id and the partitions that it had."""
        self._forget(former.id)
        self.target[id_] = self.target.pop(former.id, frozenset())
        self._put(replace(former, id=id_))

    # ---- answers

    def _release(self) -> None:
        ready = [it for it in self._held if it[0] <= self._stored_version]
        self._held = [it for it in self._held if it[0] > self._stored_version]
        self._answers += [(ticket, answer) for _, ticket, answer in ready]

    def _refuse_held(self, error: GroupError) -> None:
        for _, ticket, answer in self._held:
            self._unsure.add(answer.member_id)
            self._answers.append((ticket, HeartbeatAnswer(error=error, member_id=answer.member_id)))
        self._held = []


def _refused(request: HeartbeatRequest, error: GroupError, message: str) -> HeartbeatAnswer:
    return HeartbeatAnswer(error=error, message=message, member_id=request.member_id)
