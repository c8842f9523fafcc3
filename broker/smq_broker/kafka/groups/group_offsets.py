"""OffsetCommit, OffsetFetch and OffsetDelete."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode

from smq_broker.kafka.apis.error_codes import NO_THROTTLE
from smq_broker.kafka.executor import Blocking
from smq_broker.kafka.groups.answers import code
from smq_broker.kafka.groups.coordinator import GroupCoordinator, GroupFailure
from smq_broker.kafka.groups.group_access import check_group, usable_group
from smq_broker.kafka.groups.group_files import GroupFiles
from smq_broker.kafka.groups.hosted_group import HostedGroup
from smq_broker.kafka.groups.subscriptions import subscribed_topics
from smq_broker.kafka.protocol.messages import RequestContext, ResponseBody
from smq_broker.kafka.protocol.sessions import RequestAccess
from smq_broker.kafka.topics import KafkaTopic, KafkaTopics
from smq_core.errors import SmqError
from smq_core.kafka_groups.consumer.group import ConsumerGroup
from smq_core.kafka_groups.group_errors import GroupError
from smq_core.kafka_groups.offsets import (
    CommittedOffset,
    GroupOffsets,
    OffsetCommit,
    check_commit,
    with_commits,
    without,
)
from smq_core.kafka_topics.names import own_name

GROUPS_FROM = 8
EPOCHS_FROM = 9
GROUP_ERROR_FROM = 2
_NO_OFFSET = CommittedOffset(-1)

# What a client asks for: partitions by topic; None for all topics.
_Wanted = Mapping[str, Iterable[int]] | None


class GroupOffsetsApi:
    def __init__(
        self, *, coordinator: GroupCoordinator, files: GroupFiles, topics: KafkaTopics, blocking: Blocking
    ) -> None:
        self._coordinator = coordinator
        self._files = files
        self._topics = topics
        self._blocking = blocking

    async def commit(self, request: Any, context: RequestContext) -> ResponseBody:
        """Partitions that there are not, or that the client may not read, get an error, the others are committed."""
        errors: dict[tuple[str, int], GroupError] = {}
        try:
            named = [it.name for it in request.topics]
            group = await usable_group(self._coordinator, context.access, request.group_id, named)
            denied = await _denied(context.access, named)
            for topic in request.topics:
                if topic.name in denied:
                    errors |= {(topic.name, it.partition_index): denied[topic.name] for it in topic.partitions}
            wanted = [it for it in request.topics if it.name not in denied]
            topics = await self._find(it.name for it in wanted)
            commits = [it for topic in wanted for it in _commits(topic, topics[topic.name], errors)]
            instance = getattr(request, "group_instance_id", None)
            generation = request.generation_id_or_member_epoch
            _check_version(group, request.member_id, context.version)
            error = group.act(lambda now: group.machine.check_commit(request.member_id, instance, generation, now))
            if error is GroupError.NONE and commits:
                error = await group.change(
                    lambda it: replace(it, offsets=with_commits(it.offsets, commits), deleted=False)
                )
        except GroupFailure as failure:
            error = failure.error
        return {
            "throttle_time": NO_THROTTLE,
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {
                            "partition_index": it.partition_index,
                            "error_code": code(errors.get((topic.name, it.partition_index), error)),
                        }
                        for it in topic.partitions
                    ],
                }
                for topic in request.topics
            ],
        }

    async def fetch(self, request: Any, context: RequestContext) -> ResponseBody:
        access = context.access
        if context.version >= GROUPS_FROM:
            groups = [
                await self._fetch(it.group_id, _wanted(it.topics), access, member=_member_of(it))
                for it in request.groups
            ]
            return {"throttle_time": NO_THROTTLE, "groups": groups}
        return {
            "throttle_time": NO_THROTTLE,
            **await self._fetch(request.group_id, _wanted(request.topics), access, per_partition=context.version < 2),
        }

    async def _fetch(
        self,
        group: str,
        wanted: _Wanted,
        access: RequestAccess,
        *,
        per_partition: bool = False,
        member: tuple[str, int] | None = None,
    ) -> dict[str, Any]:
        """``per_partition``: the version has no error of the group, so each partition gets it.

        ``member`` is the id and the epoch with which a member of the consumer protocol reads.

        Who wants the offsets of all topics gets those of topics that it may read.
        """
        error, found = GroupError.NONE, {}
        denied: Mapping[str, GroupError] = {}
        try:
            stored = await self._coordinator.read(group)
            await check_group(access, stored, self._coordinator.find(group), wanted or ())
            if member is not None:
                await self._check_member(group, *member)
            found = await self._by_name(group, stored.offsets, wanted)
            denied = await _denied(access, found if wanted is None else wanted)
        except GroupFailure as failure:
            error = failure.error
        shown: Mapping[str, Iterable[int]] = (
            {name: it for name, it in found.items() if name not in denied} if wanted is None else wanted
        )
        topics = []
        for name, partitions in shown.items() if error is GroupError.NONE or per_partition else ():
            own = {} if name in denied else found.get(name, {})
            of_partition = code(denied.get(name, error if per_partition else GroupError.NONE))
            answers = [_partition(at, own.get(at, _NO_OFFSET), of_partition) for at in partitions]
            topics.append({"name": name, "partitions": answers})
        return {"group_id": group, "error_code": code(error), "topics": topics}

    async def _check_member(self, group: str, member: str, epoch: int) -> None:
        """Groups of the classic protocol let everybody read. Raises GroupFailure."""
        machine = (await self._coordinator.group(group)).machine
        if isinstance(machine, ConsumerGroup):
            error = machine.check_fetch(member, epoch)
            if error is not GroupError.NONE:
                raise GroupFailure(error)

    async def _by_name(
        self, group: str, offsets: GroupOffsets, wanted: _Wanted
    ) -> dict[str, Mapping[int, CommittedOffset]]:
        """The offsets of the wanted topics. Those of a former topic of the name, or of a deleted one, are dropped."""
        topics = await self._find((it.topic for it in offsets.values()), self._topics.with_full_name)
        found, gone = {}, set()
        for uid, own in offsets.items():
            topic = topics[own.topic]
            name = topic.name if topic is not None else own_name(own.topic)
            if wanted is not None and name not in wanted:
                continue
            # A topic that is only not found keeps its offsets: without them a client would begin at the wrong end.
            if topic.topic.uid != uid if topic is not None else await self._files.is_deleted_topic(uid):
                gone.add(uid)
            else:
                found[name] = own.partitions
        hosted = self._coordinator.find(group)
        if gone and hosted is not None:
            await hosted.change(lambda it: replace(it, offsets=without(it.offsets, lambda uid, _: uid in gone)))
        return found

    async def delete(self, request: Any, context: RequestContext) -> ResponseBody:
        try:
            named = [it.name for it in request.topics]
            group = await usable_group(self._coordinator, context.access, request.group_id, named)
            denied = await _denied(context.access, named)
            if group.stored.deleted and not len(group.machine.members):
                raise GroupFailure(GroupError.GROUP_ID_NOT_FOUND)
            topics = await self._find(it.name for it in request.topics)
            subscribed = subscribed_topics(group.machine)
            doomed = {
                (topic.topic.uid, it.partition_index)
                for wanted in request.topics
                if (topic := topics[wanted.name]) is not None
                and wanted.name not in subscribed
                and wanted.name not in denied
                for it in wanted.partitions
            }
            if doomed:
                error = await group.change(
                    lambda it: replace(it, offsets=without(it.offsets, lambda uid, at: (uid, at) in doomed))
                )
                if error is not GroupError.NONE:
                    raise GroupFailure(error)
        except GroupFailure as failure:
            return {"throttle_time": NO_THROTTLE, "error_code": code(failure.error), "topics": ()}
        results = []
        for wanted in request.topics:
            error = denied.get(wanted.name, GroupError.NONE)
            if wanted.name in denied:
                pass
            elif wanted.name in subscribed:
                error = GroupError.GROUP_SUBSCRIBED_TO_TOPIC
            elif topics[wanted.name] is None:
                error = GroupError.UNKNOWN_TOPIC_OR_PARTITION
            partitions = [
                {"partition_index": it.partition_index, "error_code": code(error)} for it in wanted.partitions
            ]
            results.append({"name": wanted.name, "partitions": partitions})
        return {"throttle_time": NO_THROTTLE, "error_code": ErrorCode.none, "topics": results}

    async def _find(
        self, names: Iterable[str], find: Callable[[str], KafkaTopic | None] | None = None
    ) -> dict[str, KafkaTopic | None]:
        """The topics of these names, which Kafka's clients use unless ``find`` takes others. Raises GroupFailure."""
        wanted = set(names)
        try:
            return await self._blocking.call(lambda: {name: (find or self._topics.named)(name) for name in wanted})
        except SmqError:
            raise GroupFailure(GroupError.COORDINATOR_NOT_AVAILABLE) from None


async def _denied(access: RequestAccess, names: Iterable[str]) -> dict[str, GroupError]:
    """The topics that the client may not read, with their errors."""
    codes = {name: await access.topic(name) for name in names}
    return {name: GroupError(it.value) for name, it in codes.items() if it is not ErrorCode.none}


def _commits(wanted: Any, topic: KafkaTopic | None, errors: dict[tuple[str, int], GroupError]) -> list[OffsetCommit]:
    """The commits for one topic. What cannot be committed is added to ``errors``."""
    commits = []
    now = time.time_ns() // 1000
    for it in wanted.partitions:
        metadata = it.committed_metadata or ""
        error = check_commit(it.partition_index, topic.partitions if topic is not None else 0, metadata)
        if topic is None or error is not GroupError.NONE:
            errors[wanted.name, it.partition_index] = error
            continue
        epoch = getattr(it, "committed_leader_epoch", -1)
        committed = CommittedOffset(it.committed_offset, epoch, metadata, now)
        commits.append(OffsetCommit(topic.topic.uid, topic.topic.name, it.partition_index, committed))
    return commits


def _check_version(group: HostedGroup, member: str, version: int) -> None:
    """Older versions know nothing of epochs of members. Raises GroupFailure."""
    if version < EPOCHS_FROM and isinstance(group.machine, ConsumerGroup) and member in group.machine.members:
        raise GroupFailure(GroupError.UNSUPPORTED_VERSION)


def _member_of(group: Any) -> tuple[str, int] | None:
    """The member and epoch in a request for the offsets of this group, if it has them."""
    member, epoch = getattr(group, "member_id", None), getattr(group, "member_epoch", -1)
    return None if not member and epoch < 0 else (member or "", epoch)


def _wanted(topics: Any) -> _Wanted:
    return None if topics is None else {it.name: it.partition_indexes for it in topics}


def _partition(index: int, committed: CommittedOffset, error: ErrorCode) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": committed.offset,
        "committed_leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "error_code": error,
    }
