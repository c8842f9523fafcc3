"""The admin API: topics, segments, brokers and groups, and manual changes to them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from smq.group_info import GroupInfo, GroupReset, group_info
from smq.transport.topic_names import full_topic_name
from smq_core.errors import InvalidRequest, UnknownSegment, UnknownTopic
from smq_core.model.loss import Loss
from smq_proto.enums import (
    APPLY_RESULT,
    BROKER_STATE,
    DURABILITY,
    PHASE,
    REASON,
    REPLICA_STATE,
    SEGMENT_ACTION,
)
from smq_proto.v1 import admin_pb2, groups_pb2, topics_pb2
from smq_proto.v1 import data_pb2 as pb

if TYPE_CHECKING:
    from smq.transport.leader_client import LeaderClient
    from smq.transport.topic_view import TopicView


@dataclass(frozen=True, slots=True)
class TopicChange:
    """One change of a topic's settings or columns, as text: ``retention.age: 7d (default) → 3d``.

    ``risk`` says what is lost by it; it is empty if nothing is.
    """

    text: str
    risk: str = ""

    def __str__(self) -> str:
        return f"{self.text}: {self.risk}" if self.risk else self.text


@dataclass(frozen=True, slots=True)
class TopicSetting:
    """One field of a topic's spec. ``field`` is its path in the manifest, such as ``retention.age``."""

    field: str
    value: str
    is_default: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedTopic:
    """The result of applying a manifest: created, configured or unchanged; with ``preview``, what it would be.

    ``before`` (empty for a new topic) and ``after`` are the topic's manifest with every field.
    """

    topic: str
    result: str
    changes: tuple[TopicChange, ...] = ()
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlteredTopic:
    """The result of a change of a topic, or a preview of it. ``changes`` has an entry for each setting and column."""

    topic: str
    result: str
    """``configured``, ``unchanged`` or ``preview``"""
    schema_version: int
    schema: tuple[tuple[str, str, bool], ...]
    """(name, type, nullable) of each column of that version"""
    changes: tuple[TopicChange, ...]


@dataclass(frozen=True, slots=True)
class RecoveredTopic:
    """What a recovery found, which documents it has written (or would write), and what nobody knows, as texts."""

    found: tuple[str, ...]
    writes: tuple[str, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TrimmedSegment:
    """A segment that a trim removed, or would. ``unread`` has the groups that skip messages: ``{group: offset}``."""

    name: str
    messages: int
    bytes: int
    unread: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TrimmedTopic:
    """What a trim removed, or would. ``kept``: segments that stay although they may have older messages, and why."""

    removed: tuple[TrimmedSegment, ...]
    kept: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a topic, such as Ready, HotPartition or SealBlocked.

    ``status`` is ``True``, ``False`` or ``Unknown``, as a string like in Kubernetes.
    """

    type: str
    status: str
    reason: str
    message: str

    @property
    def is_true(self) -> bool:
        return self.status == "True"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentInfo:
    """One segment, living or sealed. Times are in microseconds; ``end`` is None until it is sealed.

    ``brokers`` are the names of its replicas, the primary first. ``lost`` are the acked messages that it has
    lost, or may have lost.
    """

    name: str
    number: int
    start: int
    stop: int
    phase: str
    durability: str
    brokers: tuple[str, ...]
    predecessors: tuple[str, ...]
    successors: tuple[str, ...]
    opened_because: str
    sealed_because: str
    opened_at: int
    sealed_at: int
    end: int | None
    bytes: int
    lost: Loss | None = None
    schema_version: int = 0
    """of all messages in it; older than the topic's while a change of the schema has not come to this segment"""


@dataclass(frozen=True, slots=True)
class ProblemInfo:
    """What is wrong at ``where``: a manifest, a document in the filer, or a task of the leader."""

    where: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """One topic with its living segments. Rates are the leader's measurements."""

    name: str
    uid: str
    partitions: int
    key: str
    schema: tuple[tuple[str, str, bool], ...]
    """(name, type, nullable) of each column; empty without a schema"""
    durability: str
    segments: tuple[SegmentInfo, ...]
    sealed_segments: int
    messages_per_second: float
    bytes_per_second: float
    conditions: tuple[Condition, ...]
    layout_version: int
    paused: bool = False
    """whether autoscaling is paused"""
    schema_version: int = 0
    """counts the changes of the schema, from 0"""
    messages: int | None = None
    """how many the topic holds; None while the end of a segment is unknown"""
    ends: Mapping[str, int] = field(default_factory=dict)
    """the offset after the last readable message of each living segment, as the leader knows it"""

    @property
    def ready(self) -> bool:
        """The status of the leader's Ready condition; without one, whether there are segments."""
        for condition in self.conditions:
            if condition.type == "Ready":
                return condition.is_true
        return bool(self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLoad:
    """One segment as one of its replicas reports it. Counters start when it opens there."""

    topic: str
    segment: str
    primary: bool
    state: str
    end: int
    watermark: int
    chain_end: int
    tail_bytes: int
    messages: int
    bytes: int
    batches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    """One broker process. ``state`` is alive, draining or suspect (it does not answer), or one of a former process.

    Those are ended (its journal may come back), recovered (the present process of that name has its journal) and gone
    (process and journal have ended).
    """

    name: str
    incarnation: str
    address: str
    state: str
    tail_bytes: int
    memory_limit: int
    segments: tuple[SegmentLoad, ...]
    ended: str = ""
    """Why the process has ended, such as ``process 4711 ended (SIGKILL)``; empty while it may run."""
    ended_at: int = 0
    """When the leader learned that, in microseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinInfo:
    """One pin of a reader, which keeps files of removed segments. Times are in microseconds, by the filer's clock.

    ``expires_in`` is the time until it protects nothing unless it is renewed, 0 or less if that is over. ``problem``
    says why it cannot be read; then it keeps all files of the topic until it is too old.
    """

    id: str
    owner: str
    age: int
    expires_in: int
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionInfo:
    """One decision of the leader, with its reason. ``at`` is in microseconds."""

    at: int
    topic: str
    action: str
    segments: tuple[str, ...]
    reason: str


class Admin:
    """The admin API; made by :meth:`smq.Client.admin`. Every method calls the leader.

    Every method raises Unavailable if no leader answers in time, and UnknownTopic or InvalidRequest where they apply.
    Topic names may omit the client's namespace. A segment name may omit the number (``flights-0-1024`` for
    ``flights-0-1024-7``); it then means the segment of this range that accepts messages.
    """

    def __init__(
        self, leader: LeaderClient, namespace: str, view: Callable[[str], AbstractContextManager[TopicView]]
    ) -> None:
        self._leader = leader
        self._namespace = namespace
        self._view = view

    def __repr__(self) -> str:
        return f"<Admin of {self._leader}>"

    def apply(self, manifest: str, *, preview: bool = False) -> AppliedTopic:
        """Creates or changes a topic from a manifest in YAML or JSON. A field that it leaves out gets its default.

        preview: only check, and return what would change. Raises SpecRejected.
        """
        reply = self._leader.admin.ApplyTopic(admin_pb2.ApplyTopicRequest(manifest=manifest, preview=preview))
        return AppliedTopic(
            topic=reply.topic,
            result=APPLY_RESULT.shown(reply.result),
            changes=_changes(reply.changes),
            before=reply.before,
            after=reply.after,
        )

    def export(self, topic: str) -> str:
        """The topic's manifest with every field, as YAML that :meth:`apply` takes. Raises UnknownTopic."""
        return str(self._leader.admin.ExportTopic(admin_pb2.ExportTopicRequest(topic=self._topic(topic))).manifest)

    def settings(self, topic: str) -> list[TopicSetting]:
        """Every field of the topic's spec but its columns, and whether it is the default. Raises UnknownTopic."""
        reply = self._leader.admin.ExportTopic(admin_pb2.ExportTopicRequest(topic=self._topic(topic)))
        return [TopicSetting(it.field, it.value, it.is_default) for it in reply.settings]

    def alter_topic(
        self,
        topic: str,
        *,
        add_columns: Mapping[str, str] | None = None,
        drop_columns: Sequence[str] = (),
        widen_columns: Mapping[str, str] | None = None,
        make_nullable: Sequence[str] = (),
        settings: Mapping[str, object] | None = None,
        preview: bool = False,
    ) -> AlteredTopic:
        """Changes settings of a topic, and the columns of one with a schema, while producers and consumers go on.

        add_columns: types by name, such as ``{"gate": "uint8"}``. New columns are nullable.
        drop_columns: nullable columns; their names can never be used again.
        widen_columns: the new types by name: a wider integer of the same sign, or float64 for float32.
        make_nullable: columns that may be null from now on.
        settings: fields of the manifest's spec by path, such as ``{"retention.age": "3d"}``. None resets a field to its
            default, and all others stay.
        preview: only check, and return what would change.

        Returns when the leader has stored the change. If columns have changed, it then
        seals the segments, a few at a time, and opens successors that have the new columns. Raises InvalidRequest
        (SpecRejected with a reason for each field, if the change is not allowed), Conflict if somebody else has changed
        the topic, Unavailable.
        """
        # Imported here: they take a tenth of a second, which a command that only lists topics does not need.
        from smq.column_changes import ColumnChanges
        from smq_core.model.entities import Column
        from smq_proto.wire import columns_to_pb, schema_from_pb
        from smq_storage.topic_manifests.settings import nested_fields

        before = self.topic(topic)
        columns = tuple(Column(*column) for column in before.schema)
        changes = ColumnChanges(add_columns or {}, drop_columns, widen_columns or {}, make_nullable)
        reply = self._leader.admin.AlterTopic(
            admin_pb2.AlterTopicRequest(
                topic=before.name,
                columns=columns_to_pb(changes.apply(columns)),
                schema_version=before.schema_version,
                preview=preview,
                settings=json.dumps(nested_fields(settings or {})),
            ),
        )
        schema = schema_from_pb(reply.schema)
        made = _changes(reply.changes)
        done = "configured" if made else "unchanged"
        return AlteredTopic(
            topic=before.name,
            result="preview" if preview else done,
            schema_version=schema.version,
            schema=tuple((c.name, c.type, c.nullable) for c in schema.columns),
            changes=made,
        )

    def delete(self, topic: str) -> None:
        """Deletes a topic. Its deletionPolicy decides whether its files stay. Raises UnknownTopic."""
        self._leader.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(topic=self._topic(topic)))

    def pause_scaling(self, topic: str) -> None:
        """Pauses autoscaling of the topic. Failovers, drains, rolls and manual commands still work."""
        self._leader.admin.PauseScaling(admin_pb2.PauseScalingRequest(topic=self._topic(topic), paused=True))

    def resume_scaling(self, topic: str) -> None:
        """Resumes autoscaling after :meth:`pause_scaling`. Changes that the load requires start at once."""
        self._leader.admin.PauseScaling(admin_pb2.PauseScalingRequest(topic=self._topic(topic), paused=False))

    def topics(self) -> list[TopicInfo]:
        """All topics with their living segments."""
        return [_topic_info(t) for t in self._leader.admin.ListTopics(admin_pb2.ListTopicsRequest()).topics]

    def problems(self) -> list[ProblemInfo]:
        """What is wrong beside the topics' own conditions: invalid manifests, unreadable documents, failing tasks."""
        listed = self._leader.admin.ListTopics(admin_pb2.ListTopicsRequest())
        return [ProblemInfo(problem.where, problem.message) for problem in listed.problems]

    def topic(self, topic: str) -> TopicInfo:
        """One topic. Raises UnknownTopic."""
        name = self._topic(topic)
        topics = self.topics()
        for found in topics:
            if found.name == name:
                return found
        raise UnknownTopic.among(name, (it.name for it in topics))

    def segments(self, topic: str, all: bool = False) -> list[SegmentInfo]:
        """The living segments, by range; with ``all`` the sealed ones too: the whole DAG, oldest first."""
        name = self._topic(topic)
        layout = self._leader.topics.Locate(pb.LocateRequest(topic=name)).layout
        living = [_segment_info(s) for s in layout.segments]
        if not all:
            return sorted(living, key=lambda s: (s.start, s.number))
        history = self._leader.topics.History(topics_pb2.HistoryRequest(topic=name)).segments
        both = {s.name: s for s in living} | {s.name: _segment_info(s) for s in history}
        return sorted(both.values(), key=lambda s: s.number)

    def brokers(self) -> list[BrokerInfo]:
        """The brokers that the leader knows, with the load that they reported last."""
        return [_broker_info(b) for b in self._leader.admin.ListBrokers(admin_pb2.ListBrokersRequest()).brokers]

    def groups(self, topic: str) -> list[GroupInfo]:
        """The consumer groups of a topic, with their lag, whether they have members or not."""
        reply = self._leader.groups.ListGroups(groups_pb2.ListGroupsRequest(topic=self._topic(topic)))
        return [group_info(g) for g in reply.groups]

    def group(self, topic: str, group: str) -> GroupInfo:
        """One consumer group. Raises InvalidRequest if there is none of that name."""
        found = self.groups(topic)
        for it in found:
            if it.name == group:
                return it
        raise InvalidRequest(
            f"{self._topic(topic)} has no group {group}; it has {', '.join(it.name for it in found) or 'none'}"
        )

    def reset_group(
        self,
        topic: str,
        group: str,
        to: Literal["earliest", "latest"] | datetime | Mapping[str, int] | None = None,
        *,
        by: int | None = None,
        create: bool = False,
        dry_run: bool = False,
    ) -> GroupReset:
        """Sets where the group continues. It must have no members. Returns the positions before and after.

        to: ``earliest``, ``latest``, a time (the first messages that were appended at or after it; UTC without a zone),
            or positions ``{segment: next offset}``. Segments without a position are read from their beginning.
        by: instead of ``to``, this number of messages on in each segment that the group reads now. Negative is back.
            At most to the segment's beginning or end.
        create: the group may be new.
        dry_run: only check, and return what would change.

        A time and ``by`` are resolved here, from files and brokers. Raises InvalidRequest if the group has members or
        does not exist, or if it cannot have these positions; the message says which are possible. Nothing is changed
        then.
        """
        from smq.consuming.position_search import PositionSearch  # imported here, because it takes Arrow

        if (to is None) == (by is None):
            raise InvalidRequest("pass either where the group shall continue (to=), or by how many messages (by=)")
        name = self._topic(topic)
        with self._view(name) as view, PositionSearch(view) as search:
            if by is not None:
                positions = search.shifted(self.group(name, group).positions, by)
            else:
                assert to is not None
                positions = search.resolve(to)
        request = groups_pb2.SetPositionsRequest(
            topic=name, group=group, positions=positions, create=create, dry_run=dry_run
        )
        reply = self._leader.groups.SetPositions(request)
        return GroupReset(group, dict(reply.before), dict(reply.positions))

    def delete_group(self, topic: str, group: str) -> None:
        """Deletes a group and its positions. Raises InvalidRequest if it has members, or does not exist."""
        self._leader.groups.DeleteGroup(groups_pb2.DeleteGroupRequest(topic=self._topic(topic), group=group))

    def pins(self, topic: str) -> list[PinInfo]:
        """The pins of readers of a topic, the oldest first."""
        reply = self._leader.admin.ListPins(admin_pb2.ListPinsRequest(topic=self._topic(topic)))
        return [
            PinInfo(id=p.id, owner=p.owner, age=p.age, expires_in=p.expires_in, problem=p.problem) for p in reply.pins
        ]

    def decisions(self) -> list[DecisionInfo]:
        """The leader's last decisions, oldest first."""
        reply = self._leader.admin.ListDecisions(admin_pb2.ListDecisionsRequest())
        return [
            DecisionInfo(at=d.at, topic=d.topic, action=d.action, segments=tuple(d.segments), reason=d.reason)
            for d in reply.decisions
        ]

    def split(self, topic: str, segment: str, at: int | Sequence[int] = ()) -> None:
        """Requests a split at the given partitions (strictly inside the range), or in the middle if none is given.

        Returns when the request is stored, so that it survives a change of leader; ``segments()`` shows when the split
        is done. Raises InvalidRequest if the segment was changed otherwise first, and Unavailable while no broker can
        host the successors. The same holds for ``merge``, ``move`` and ``roll``.
        """
        self._plan(topic, "split", [segment], [at] if isinstance(at, int) else at)

    def merge(self, topic: str, segments: Sequence[str]) -> None:
        """Requests a merge of neighbouring segments into one."""
        self._plan(topic, "merge", segments)

    def move(self, topic: str, segment: str) -> None:
        """Requests a successor of the same range on other brokers."""
        self._plan(topic, "move", [segment])

    def roll(self, topic: str, segment: str) -> None:
        """Requests that the segment is sealed and continued by a successor of the same range."""
        self._plan(topic, "roll", [segment])

    def drain(self, broker: str) -> None:
        """Requests that all segments move away from this broker."""
        self._leader.admin.DrainBroker(admin_pb2.DrainBrokerRequest(broker=broker))

    def undrain(self, broker: str) -> None:
        """Requests a new process for a drained broker of local mode; the new one takes segments.

        Raises InvalidRequest if the broker does not drain, and on Kubernetes, where deleting its Pod does the same.
        """
        self._leader.admin.UndrainBroker(admin_pb2.UndrainBrokerRequest(broker=broker))

    def trim_topic(
        self, topic: str, before: datetime, *, skip_unread: bool = False, preview: bool = False
    ) -> TrimmedTopic:
        """Removes the segments that were sealed before a time (UTC without a zone), as retention does, but now.

        skip_unread: also segments that groups have not read to their ends. Their members are told what they missed.
        preview: only look, and return what would be removed.

        Whole segments are removed, and open ones stay; :meth:`roll` seals one. Their files are deleted later, as those
        that retention removes. Raises InvalidRequest for a time in the future; Unavailable, and some may be removed
        then.
        """
        at = before if before.tzinfo is not None else before.replace(tzinfo=UTC)
        micros = (at - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)
        request = admin_pb2.TrimTopicRequest(
            topic=self._topic(topic), before=micros, preview=preview, skip_unread=skip_unread
        )
        removed: list[TrimmedSegment] = []
        while True:
            reply = self._leader.admin.TrimTopic(request)
            removed += [TrimmedSegment(it.segment, it.messages, it.bytes, dict(it.unread)) for it in reply.removed]
            if not reply.more:
                return TrimmedTopic(tuple(removed), {it.segment: it.reason for it in reply.kept})

    def recover_topic(self, topic: str, *, preview: bool = False, accept_loss: bool = False) -> RecoveredTopic:
        """Writes a lost layout or uid of a topic anew, from what the filer and the brokers still have.

        preview: only look, and return what would be written.
        accept_loss: also if acked messages may be lost with brokers that do not answer.

        A document that is there is never replaced. Raises InvalidRequest if nothing is missing, or if messages may be
        lost and that is not accepted; Unavailable.
        """
        request = admin_pb2.RecoverTopicRequest(topic=self._topic(topic), preview=preview, accept_loss=accept_loss)
        reply = self._leader.admin.RecoverTopic(request)
        return RecoveredTopic(tuple(reply.found), tuple(reply.writes), tuple(reply.unknown))

    def accept_loss(self, topic: str, segment: str) -> None:
        """Lets a blocked seal finish without the replicas that do not answer. Messages that only they hold are lost."""
        name = self._topic(topic)
        request = admin_pb2.AcceptLossRequest(topic=name, segment=self._segment(name, segment))
        self._leader.admin.AcceptLoss(request)

    def _plan(self, topic: str, action: str, segments: Sequence[str], boundaries: Iterable[int] = ()) -> None:
        name = self._topic(topic)
        full = [self._segment(name, s) for s in segments]
        try:
            request = admin_pb2.ChangeSegmentsRequest(
                topic=name, action=SEGMENT_ACTION.value(action), segments=full, boundaries=boundaries
            )
        except (ValueError, TypeError):
            raise InvalidRequest(f"a boundary must be the number of a partition; got {list(boundaries)}") from None
        self._leader.admin.ChangeSegments(request)

    def _segment(self, topic: str, name: str) -> str:
        living = self.segments(topic)
        names = [s.name for s in living]
        if name in names:
            return name
        for segment in living:
            if segment.name.rsplit("-", 1)[0] == name and not segment.successors:
                return segment.name
        raise UnknownSegment(
            f"{topic} has no living segment {name}; it has {', '.join(names[:20]) or 'none'}"
            + (f" and {len(names) - 20} more" if len(names) > 20 else ""),
            segment=name,
        )

    def _topic(self, topic: str) -> str:
        return full_topic_name(topic, self._namespace)


def _changes(changes: Iterable[admin_pb2.TopicChange]) -> tuple[TopicChange, ...]:
    return tuple(TopicChange(change.text, change.risk) for change in changes)


def _segment_info(s: pb.Segment) -> SegmentInfo:
    return SegmentInfo(
        name=s.name,
        number=s.number,
        start=s.start,
        stop=s.stop,
        phase=PHASE.shown(s.phase),
        durability=DURABILITY.shown(s.durability),
        brokers=tuple(r.broker for r in s.replicas),
        predecessors=tuple(s.predecessors),
        successors=tuple(s.successors),
        opened_because=REASON.shown(s.opened_because),
        sealed_because=REASON.shown(s.sealed_because),
        opened_at=s.opened_at,
        sealed_at=s.sealed_at,
        end=s.end if s.HasField("end") else None,
        bytes=s.bytes,
        lost=Loss(s.lost.start, s.lost.stop, s.lost.at_least) if s.HasField("lost") else None,
        schema_version=s.schema_version,
    )


def _topic_info(t: admin_pb2.TopicList.Topic) -> TopicInfo:
    return TopicInfo(
        name=t.info.name,
        uid=t.info.uid,
        partitions=t.info.partitions,
        key=t.info.key,
        schema=tuple((c.name, c.type, c.nullable) for c in t.info.schema),
        durability=DURABILITY.shown(t.info.durability),
        segments=tuple(sorted((_segment_info(s) for s in t.layout.segments), key=lambda s: (s.start, s.number))),
        sealed_segments=t.sealed_segments,
        messages_per_second=t.messages_per_second,
        bytes_per_second=t.bytes_per_second,
        conditions=tuple(Condition(c.type, c.status, c.reason, c.message) for c in t.conditions),
        layout_version=t.layout.version,
        paused=t.paused,
        schema_version=t.info.schema_version,
        messages=t.messages if t.HasField("messages") else None,
        ends=dict(t.ends),
    )


def _broker_info(b: admin_pb2.BrokerList.Broker) -> BrokerInfo:
    return BrokerInfo(
        name=b.name,
        incarnation=b.incarnation,
        address=b.address,
        state=BROKER_STATE.shown(b.state),
        tail_bytes=b.status.tail_bytes,
        memory_limit=b.status.memory_limit,
        segments=tuple(
            SegmentLoad(
                topic=s.topic,
                segment=s.segment,
                primary=s.primary,
                state=REPLICA_STATE.shown(s.state),
                end=s.end,
                watermark=s.watermark,
                chain_end=s.chain_end,
                tail_bytes=s.tail_bytes,
                messages=s.messages,
                bytes=s.bytes,
                batches=s.batches,
            )
            for s in b.status.segments
        ),
        ended=b.ended,
        ended_at=b.ended_at,
    )
