"""The admin API: topics, segments, brokers and groups, and manual changes to them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from google.protobuf.empty_pb2 import Empty

from smq.admin.broker_infos import (
    BrokerInfo,
    DecisionInfo,
    PinInfo,
    StoryEvent,
    broker_info,
    decision_info,
    pin_info,
    story_event,
)
from smq.admin.caller_infos import OPEN, AccessCheck, AuthorityRotation, CallerInfo, authority_rotation, caller_info
from smq.admin.filer_keys import FilerKeys, filer_keys
from smq.admin.group_infos import GroupInfo, GroupReset, group_info
from smq.admin.kafka_group_infos import KafkaGroupInfo, kafka_group_info
from smq.admin.topic_infos import (
    AlteredTopic,
    AppliedTopic,
    ProblemInfo,
    RecoveredTopic,
    SegmentInfo,
    TopicInfo,
    TopicSetting,
    TrimmedSegment,
    TrimmedTopic,
    segment_info,
    topic_changes,
    topic_info,
)
from smq_core.errors import InvalidRequest, UnknownSegment, UnknownTopic
from smq_core.kafka_groups.advice import of_kafka_clients
from smq_core.model.names import check_file_name, full_topic_name
from smq_proto.enums import APPLY_RESULT, SEGMENT_ACTION
from smq_proto.pages import all_pages
from smq_proto.v1 import admin_pb2, auth_pb2, groups_pb2, topics_pb2
from smq_proto.v1 import data_pb2 as pb

if TYPE_CHECKING:
    from smq.transport.leader_client import LeaderClient
    from smq.transport.topic_view import TopicView


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
            changes=topic_changes(reply.changes),
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
        from smq_storage.topic_manifests.topic_settings import nested_fields

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
            )
        )
        schema = schema_from_pb(reply.schema)
        made = topic_changes(reply.changes)
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
        pages = all_pages(self._leader.admin.ListTopics, admin_pb2.ListTopicsRequest())
        return [topic_info(topic) for page in pages for topic in page.topics]

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
        living = [segment_info(s) for s in layout.segments]
        if not all:
            return sorted(living, key=lambda s: (s.start, s.number))
        pages = all_pages(self._leader.topics.History, topics_pb2.HistoryRequest(topic=name))
        both = {s.name: s for s in living} | {s.name: segment_info(s) for page in pages for s in page.segments}
        return sorted(both.values(), key=lambda s: s.number)

    def brokers(self) -> list[BrokerInfo]:
        """The brokers that the leader knows, with the load that they reported last."""
        pages = all_pages(self._leader.admin.ListBrokers, admin_pb2.ListBrokersRequest())
        return [broker_info(broker) for page in pages for broker in page.brokers]

    def groups(self, topic: str) -> list[GroupInfo]:
        """The consumer groups of a topic, with their lag, whether they have members or not."""
        pages = all_pages(self._leader.groups.ListGroups, groups_pb2.ListGroupsRequest(topic=self._topic(topic)))
        return [group_info(g) for page in pages for g in page.groups]

    def kafka_groups(self, topic: str, *, describe: str = "") -> list[KafkaGroupInfo]:
        """The groups of Kafka clients that have committed offsets of a topic.

        describe: of this one also its partitions.
        """
        request = groups_pb2.ListGroupsRequest(topic=self._topic(topic), kafka_group=describe)
        return [kafka_group_info(it) for it in self._leader.groups.ListGroups(request).kafka_groups]

    def group(self, topic: str, group: str) -> GroupInfo:
        """One consumer group. Raises InvalidRequest if there is none of that name, or only one of Kafka clients."""
        found = self.groups(topic)
        for it in found:
            if it.name == group:
                return it
        if any(it.name == group for it in self.kafka_groups(topic)):
            raise InvalidRequest(of_kafka_clients(self._topic(topic), group))
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
        check_file_name("a group's name", group)
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
        check_file_name("a group's name", group)
        self._leader.groups.DeleteGroup(groups_pb2.DeleteGroupRequest(topic=self._topic(topic), group=group))

    def pins(self, topic: str) -> list[PinInfo]:
        """The pins of readers of a topic, the oldest first."""
        reply = self._leader.admin.ListPins(admin_pb2.ListPinsRequest(topic=self._topic(topic)))
        return [pin_info(p) for p in reply.pins]

    def decisions(self) -> list[DecisionInfo]:
        """The leader's last decisions, oldest first."""
        reply = self._leader.admin.ListDecisions(admin_pb2.ListDecisionsRequest())
        return [decision_info(d) for d in reply.decisions]

    def story(self, topic: str) -> list[StoryEvent]:
        """What the leader did about the topic since it leads, and what came of it: the last 1,000 events, oldest first.

        A segment that opens, or one that is sealed, has several events. See :class:`StoryEvent`.
        """
        reply = self._leader.admin.ReadStory(admin_pb2.ReadStoryRequest(topic=self._topic(topic)))
        return [story_event(e) for e in reply.events]

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

    def whoami(self) -> CallerInfo:
        """Who the leader takes this client for. Raises Unauthenticated if nobody has its token."""
        return caller_info(self._leader.auth.WhoAmI(Empty()))

    def can_i(self, verb: str, topic: str | None = None, *, group: str | None = None) -> AccessCheck:
        """Whether this client may do something.

        verb: ``produce``, ``consume``, ``administer``, or what is done with the Topic resource: ``get``, ``list``,
            ``create``, ``update``, ``delete``.
        topic: None means all topics of the client's namespace.
        group: with ``consume``, also whether this consumer group may be used.

        Raises InvalidRequest for another verb, Unauthenticated.
        """
        if self.whoami().method == OPEN:
            return AccessCheck(allowed=True, reason="this release is open, and everybody may do everything")
        where = self._topic(topic) if topic else f"{self._namespace}/"
        request = auth_pb2.CheckAccessRequest(verb=verb, topic=where, group=group or "")
        reply = self._leader.auth.CheckAccess(request)
        return AccessCheck(allowed=reply.allowed, reason=reply.reason)

    def filer_keys(self, topic: str, *, lifetime: timedelta = timedelta(hours=1)) -> FilerKeys:
        """Temporary keys that read and list the files of a topic, for tools that do so by themselves.

        lifetime: 15 minutes to an hour. The keys are good for that long, even if the right is taken away meanwhile.

        Raises StoreUnsupported if the release hands out none, StoreDenied if the filer refuses, InvalidRequest,
        PermissionDenied without the right to consume, UnknownTopic, Unavailable.
        """
        request = topics_pb2.GetFilerKeysRequest(
            topic=self._topic(topic), lifetime_seconds=max(0, round(lifetime.total_seconds()))
        )
        return filer_keys(self._leader.topics.GetFilerKeys(request))

    def authorities(self) -> AuthorityRotation:
        """What signs the certificates of this release, and what its processes trust. Raises PermissionDenied."""
        return authority_rotation(self._leader.auth.ListAuthorities(auth_pb2.ListAuthoritiesRequest()))

    def rotate_authority(self) -> AuthorityRotation:
        """Introduces the authority that signs next, unless one is introduced already.

        The release goes on by itself: see ``authorities``. Raises InvalidRequest if the user gives the authority, and
        in an open release; PermissionDenied.
        """
        return authority_rotation(self._leader.auth.RotateAuthority(auth_pb2.RotateAuthorityRequest()))

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
