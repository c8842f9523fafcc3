"""Whether a client may use a group: by the topics that the group reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from smq_broker.kafka.groups.coordinator import GroupCoordinator, GroupFailure
from smq_broker.kafka.groups.hosted_group import HostedGroup
from smq_broker.kafka.groups.subscriptions import subscribed_topics
from smq_broker.kafka.protocol.sessions import RequestAccess
from smq_core.kafka_groups.group_errors import GroupError
from smq_storage.catalog.kafka_groups import StoredKafkaGroup


async def check_group(
    access: RequestAccess,
    stored: StoredKafkaGroup,
    hosted: HostedGroup | None,
    more: Iterable[str] = (),
    *,
    listed: bool = False,
) -> None:
    """By the topics with offsets, those that members subscribe to, and those that clients call as ``more`` has them.

    ``listed``: the client did not name the group. Raises GroupFailure.
    """
    topics = {it.topic for it in stored.offsets.values()}
    denied = await access.group(stored.name, topics, _named(hosted, more), listed=listed)
    if denied.value:
        raise GroupFailure(GroupError(denied.value))


async def usable_group(
    coordinator: GroupCoordinator, access: RequestAccess, name: str, more: Iterable[str] = ()
) -> HostedGroup:
    """The group, if the client may use it. Raises GroupFailure."""
    group = await coordinator.group(name)
    await check_group(access, group.stored, group, more)
    return group


def _named(hosted: HostedGroup | None, more: Iterable[str]) -> Iterator[str]:
    """Found only if somebody looks at them: a large group has them in the metadata of each of its members."""
    if hosted is not None:
        yield from subscribed_topics(hosted.machine)
    yield from more
