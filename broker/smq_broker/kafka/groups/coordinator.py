"""The groups that this broker coordinates.

A group's coordinator is the node with the highest hash. It becomes the owner of the group's document with its first
write, and the former owner drops the group. An owner continues while others believe that it is the coordinator,
because the list of nodes is incomplete for a moment after each change of the leader.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import structlog

from smq_broker.kafka.cluster import KafkaCluster, KafkaNode
from smq_broker.kafka.groups.group_files import GroupFiles
from smq_broker.kafka.groups.hosted_group import HostedGroup
from smq_broker.runtime.log_limiter import LogLimiter
from smq_core.errors import SmqError
from smq_core.kafka_groups.coordinators import coordinator_of
from smq_core.kafka_groups.group_errors import GroupError
from smq_core.kafka_groups.requests import GroupSettings
from smq_core.model.entities import SECOND
from smq_storage.catalog.kafka_groups import StoredKafkaGroup

log = structlog.get_logger()

MAX_GROUP_ID_CHARACTERS = 249
# In memory. Others are read again when they are used.
MAX_GROUPS = 10_000
# A client that waits longer for the filer is sent away, and repeats.
MAX_LOAD_SECONDS = 2.0
CHECK_SECONDS = 5.0
IDLE_SECONDS = 60.0
# How often the document of a group with members is written at least, because retention waits for active groups.
TOUCH_SECONDS = 3600.0
# How often in a row a check has to find another node with a higher hash before a group moves there.
CHECKS_BEFORE_MOVE = 3


class GroupFailure(Exception):
    """A request is refused with this error. ``message`` is shown where an API has a place for one."""

    def __init__(self, error: GroupError, message: str | None = None) -> None:
        super().__init__(message or error.name)
        self.error = error
        self.message = message


class GroupCoordinator:
    """Runs in the event loop of the listener."""

    def __init__(self, *, cluster: KafkaCluster, files: GroupFiles, settings: GroupSettings) -> None:
        self._cluster = cluster
        self._files = files
        self._settings = settings
        self._groups: dict[str, HostedGroup] = {}
        self._loads: dict[str, asyncio.Task[HostedGroup]] = {}
        self._elsewhere: Counter[str] = Counter()
        """In how many checks in a row another node was the coordinator of a group."""
        self._checks: asyncio.Task[None] | None = None
        self._limiter = LogLimiter()

    def node_of(self, name: str) -> KafkaNode | None:
        """Where clients find the coordinator of the group."""
        nodes = {it.id: it for it in self._cluster.nodes()}
        if name in self._groups and self._groups[name].is_owned:
            return nodes.get(self._cluster.own_id)
        id_ = coordinator_of(name, nodes)
        return nodes[id_] if id_ is not None else None

    def coordinates(self, name: str) -> bool:
        node = self.node_of(name)
        return node is not None and node.id == self._cluster.own_id

    def find(self, name: str) -> HostedGroup | None:
        """The group, if it is in memory."""
        return self._groups.get(name)

    def check(self, name: str) -> None:
        """Raises GroupFailure unless the group can be coordinated here."""
        if not 0 < len(name) <= MAX_GROUP_ID_CHARACTERS:
            raise GroupFailure(GroupError.INVALID_GROUP_ID)
        if not self.coordinates(name):
            raise GroupFailure(GroupError.NOT_COORDINATOR)

    async def group(self, name: str) -> HostedGroup:
        """The group, which is read if it is not in memory. Raises GroupFailure."""
        found = self._groups.get(name)
        if found is not None:
            return found
        self.check(name)
        load = self._loads.get(name)
        if load is None:
            if len(self._groups) + len(self._loads) >= MAX_GROUPS:
                raise GroupFailure(GroupError.COORDINATOR_NOT_AVAILABLE)
            load = self._loads[name] = asyncio.create_task(self._load(name))
            load.add_done_callback(lambda done: self._loaded(name, done))
        try:
            return await asyncio.wait_for(asyncio.shield(load), MAX_LOAD_SECONDS)
        except TimeoutError:
            raise GroupFailure(GroupError.COORDINATOR_LOAD_IN_PROGRESS) from None

    async def read(self, name: str) -> StoredKafkaGroup:
        """The group as the filer has it, after the commits that were sent before. Raises GroupFailure.

        The memory could be that of a former coordinator, which would let a client begin at an outdated offset.
        """
        self.check(name)
        hosted = self._groups.get(name)
        if hosted is not None:
            await hosted.written()
            return await self._read_current(hosted)
        return (await self._read(name))[0]

    async def confirm(self, hosted: HostedGroup) -> None:
        """Another coordinator gives away the partitions of members that it has not heard of for a session.

        So they must not stay here for that long, where they are members as before. Raises GroupFailure.
        """
        age = asyncio.get_running_loop().time() - hosted.confirmed_at
        if age * SECOND > self._settings.consumer_session_timeout / 3:
            await self._read_current(hosted)

    async def stored_groups(self) -> list[StoredKafkaGroup]:
        """All groups whose coordinator this is. Raises GroupFailure."""
        try:
            return [it for it in await self._files.all() if self.coordinates(it.name)]
        except SmqError as error:
            raise self._unavailable(error) from None

    async def _load(self, name: str) -> HostedGroup:
        stored, etag = await self._read(name)
        group = HostedGroup(
            stored=stored,
            etag=etag,
            owner=self._cluster.incarnation,
            files=self._files,
            settings=self._settings,
            dropped=self._forget,
        )
        self._groups[name] = group
        group.begin()
        if self._checks is None:
            self._checks = asyncio.create_task(self._check_all())
        return group

    def _loaded(self, name: str, load: asyncio.Task[HostedGroup]) -> None:
        self._loads.pop(name, None)
        if not load.cancelled():
            load.exception()  # whoever waits has it too

    async def _read(self, name: str) -> tuple[StoredKafkaGroup, str | None]:
        try:
            return await self._files.read(name) or (StoredKafkaGroup(name=name, deleted=True), None)
        except SmqError as error:
            raise self._unavailable(error) from None

    def _forget(self, group: HostedGroup) -> None:
        self._groups.pop(group.name, None)
        self._elsewhere.pop(group.name, None)

    async def _read_current(self, hosted: HostedGroup) -> StoredKafkaGroup:
        """The document of a group in memory. If another coordinator has written it, the memory is dropped.

        Raises GroupFailure.
        """
        was_owned, now = hosted.is_owned, asyncio.get_running_loop().time()
        stored, _ = await self._read(hosted.name)
        if was_owned and stored.session != hosted.session:
            log.info("a Kafka group has another coordinator", group=hosted.name, owner=stored.owner)
            hosted.drop(GroupError.NOT_COORDINATOR)
        if hosted.is_dropped:
            raise GroupFailure(GroupError.NOT_COORDINATOR)
        hosted.confirmed_at = max(now, hosted.confirmed_at)
        return stored

    async def _check_all(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            for group in list(self._groups.values()):
                try:
                    await self._check(group)
                except GroupFailure:
                    continue  # dropped, or the filer is away, for other coordinators as well

    async def _check(self, group: HostedGroup) -> None:
        """A former coordinator would serve its members in vain: their commits fail, and others read the same."""
        now = asyncio.get_running_loop().time()
        if group.is_dropped:
            return
        if not group.is_busy:
            if now - group.used_at > IDLE_SECONDS:
                group.drop(GroupError.NOT_COORDINATOR)
            return
        is_here = coordinator_of(group.name, (it.id for it in self._cluster.nodes())) == self._cluster.own_id
        self._elsewhere[group.name] = 0 if is_here else self._elsewhere[group.name] + 1
        if self._elsewhere[group.name] >= CHECKS_BEFORE_MOVE:
            await group.written()
            log.info("a Kafka group moves to the broker with the highest hash", group=group.name)
            group.drop(GroupError.NOT_COORDINATOR)
        elif group.is_owned and now - group.written_at > TOUCH_SECONDS:
            await group.change(lambda it: it)
        elif group.is_owned and now - group.written_at > CHECK_SECONDS:
            await self._read_current(group)

    def _unavailable(self, error: SmqError) -> GroupFailure:
        left_out = self._limiter.admit("unavailable")
        if left_out is not None:
            log.warning("groups of Kafka clients cannot be read", error=error.message, left_out=left_out)
        return GroupFailure(GroupError.COORDINATOR_NOT_AVAILABLE)
