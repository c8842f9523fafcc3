"""What the subscriptions of members stand for: topics by name, and by pattern as far as the client may see them."""

from __future__ import annotations

from collections.abc import Iterable

from smq_broker.kafka.executor import Blocking
from smq_broker.kafka.groups.coordinator import GroupFailure
from smq_broker.kafka.groups.topic_patterns import matching
from smq_broker.kafka.protocol.sessions import RequestAccess
from smq_broker.kafka.topics import KafkaTopics
from smq_core.errors import SmqError
from smq_core.kafka_groups.consumer.partitions import TopicSize
from smq_core.kafka_groups.group_errors import GroupError


class TopicLookup:
    """Raises GroupFailure while the filer is away."""

    def __init__(self, topics: KafkaTopics, blocking: Blocking) -> None:
        self._topics = topics
        self._blocking = blocking

    async def named(self, names: Iterable[str]) -> dict[str, TopicSize | None]:
        """The topics of these names, None for those that there are not."""

        def find() -> dict[str, TopicSize | None]:
            found = {name: self._topics.named(name) for name in names}
            return {
                name: TopicSize(str(it.id), it.partitions) if it is not None else None for name, it in found.items()
            }

        try:
            return await self._blocking.call(find)
        except SmqError:
            raise GroupFailure(GroupError.COORDINATOR_NOT_AVAILABLE) from None

    async def matching(self, pattern: str, access: RequestAccess, group: str) -> frozenset[str]:
        """The names that match, of topics that the client may see, in namespaces in which it may use the group."""
        matching(pattern, ())  # is refused before the filer is read
        try:
            found = await self._blocking.call(self._topics.all)
        except SmqError:
            raise GroupFailure(GroupError.COORDINATOR_NOT_AVAILABLE) from None
        names = matching(pattern, (it.name for it in found))
        full = {it.topic.name: it.name for it in found if it.name in names}
        allowed: dict[str, bool] = {}
        for namespace in {name.partition("/")[0] for name in full}:
            denied = await access.group(group, [f"{namespace}/"], listed=True)
            allowed[namespace] = not denied.value
        visible = await access.visible(name for name in full if allowed[name.partition("/")[0]])
        return frozenset(full[name] for name in visible)
