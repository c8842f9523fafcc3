"""The coordinators of a group share one document in the filer, which decides between them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from smq_broker.kafka.cluster import KafkaCluster
from smq_broker.kafka.executor import Blocking
from smq_broker.kafka.groups import coordinator as coordinators
from smq_broker.kafka.groups.coordinator import GroupCoordinator, GroupFailure
from smq_broker.kafka.groups.group_files import GroupFiles
from smq_core.errors import SmqError, StoreStateUnknown, StoreUnavailable
from smq_core.kafka_groups.consumer.group import ConsumerGroup
from smq_core.kafka_groups.consumer.heartbeats import HeartbeatRequest
from smq_core.kafka_groups.group_errors import GroupError
from smq_core.kafka_groups.offsets import CommittedOffset, OffsetCommit, with_commits
from smq_core.kafka_groups.requests import GroupSettings, JoinAnswer, JoinRequest, Protocol, SyncRequest
from smq_core.model.entities import SECOND
from smq_storage.catalog.kafka_groups import StoredKafkaGroup
from smq_storage.object_store.store import Store, open_store
from support.waiting import HANG_GUARD


class Files(GroupFiles):
    """Writes wait while ``gate`` is closed, and fail with ``failure``. ``loses_acks`` fails one that was applied."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, Blocking())
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: SmqError | None = None
        self.loses_acks = False
        self.writes = 0

    async def write(self, group: StoredKafkaGroup, etag: str | None) -> str:
        self.writes += 1
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        new = await super().write(group, etag)
        if self.loses_acks:
            self.loses_acks = False
            raise StoreStateUnknown("the ack was lost")
        return new


class Broker:
    """``others`` are the listeners of other brokers that it knows."""

    def __init__(self, store: Store, name: str) -> None:
        self.files = Files(store)
        self.others: dict[str, str] = {}
        cluster = KafkaCluster(
            cluster_id="c", incarnation=name, address=lambda: "127.0.0.1:1", listeners=lambda: self.others
        )
        self.groups = GroupCoordinator(
            cluster=cluster, files=self.files, settings=GroupSettings(initial_rebalance_delay=0)
        )

    async def commit(self, offset: int, member: str = "", generation: int = -1) -> GroupError:
        group = await self.groups.group("g")
        error = group.act(lambda now: group.machine.check_commit(member, None, generation, now))
        if error is not GroupError.NONE:
            return error
        commit = OffsetCommit("u", "default/t", 0, CommittedOffset(offset))
        return await group.change(lambda it: replace(it, offsets=with_commits(it.offsets, [commit]), deleted=False))

    async def join(self, name: str) -> JoinAnswer:
        group = await self.groups.group("g")
        request = JoinRequest(
            member_id="",
            new_id=name,
            protocol_type="consumer",
            protocols=(Protocol("range", b""),),
            session_timeout=1000 * SECOND,
            rebalance_timeout=1000 * SECOND,
            must_know_its_id=False,
        )
        answer = await group.wait_for(lambda ticket, now: group.machine.join(ticket, request, now))
        assert isinstance(answer, JoinAnswer)
        sync = SyncRequest(member_id=answer.member_id, generation=answer.generation, assignments={})
        await group.wait_for(lambda ticket, now: group.machine.sync(ticket, sync, now))
        return answer

    async def offset(self) -> int | None:
        offsets = (await self.groups.read("g")).offsets
        return offsets["u"].partitions[0].offset if "u" in offsets else None


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


async def until(done: asyncio.Future[object] | asyncio.Task[object], files: Files, writes: int) -> None:
    """Waits until that many writes have begun; ``done`` must wait until then."""
    while files.writes < writes:
        await asyncio.sleep(0)
    assert not done.done()


async def until_forgotten(broker: Broker) -> None:
    async with asyncio.timeout(HANG_GUARD):
        while broker.groups.find("g") is not None:
            await asyncio.sleep(0.01)


async def test_a_commit_is_acked_after_its_write_and_joined_with_others(store: Store) -> None:
    broker = Broker(store, "a")
    broker.files.gate.clear()
    first = asyncio.create_task(broker.commit(1))
    await until(first, broker.files, 1)
    others = [asyncio.create_task(broker.commit(offset)) for offset in range(2, 9)]
    reading = asyncio.create_task(broker.offset())
    await asyncio.sleep(0)
    broker.files.gate.set()
    assert {await it for it in (first, *others)} == {GroupError.NONE}
    assert broker.files.writes == 2
    assert await reading == 8, "a client that asks after a commit must not begin before it"


async def test_no_member_learns_of_a_generation_before_its_write(store: Store) -> None:
    broker = Broker(store, "a")
    broker.files.gate.clear()
    joining = asyncio.create_task(broker.join("m"))
    await until(joining, broker.files, 1)
    broker.files.gate.set()
    assert (await joining).generation == 1


async def test_the_next_coordinator_continues_generations_and_offsets(store: Store) -> None:
    former, new = Broker(store, "a"), Broker(store, "b")
    member = await former.join("m")
    assert member.generation == 1 and await former.commit(7, "m", 1) is GroupError.NONE
    assert await new.offset() == 7
    assert (await new.join("n")).generation == 2
    assert await former.commit(9, "m", 1) is GroupError.NOT_COORDINATOR
    assert await new.offset() == 7
    assert former.groups.find("g") is None
    assert await former.commit(9, "m", 1) is GroupError.UNKNOWN_MEMBER_ID


async def test_a_former_coordinator_notices_without_a_commit(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinators, "CHECK_SECONDS", 0.01)
    former, new = Broker(store, "a"), Broker(store, "b")
    await former.join("m")
    await new.join("n")
    await until_forgotten(former)


async def test_members_do_not_stay_with_a_former_coordinator_until_others_have_their_partitions(store: Store) -> None:
    former, new = Broker(store, "a"), Broker(store, "b")
    group = await former.groups.group("g")
    machine = group.consumer()
    assert machine is not None
    request = HeartbeatRequest(member_id="m", epoch=0, rebalance_timeout=1, names=frozenset(), owned=frozenset())
    await group.wait_for(lambda ticket, now: machine.heartbeat(ticket, request, {}, now))
    following = await new.groups.group("g")
    assert isinstance(following.machine, ConsumerGroup) and set(following.machine.members) == {"m"}
    async with asyncio.timeout(HANG_GUARD):
        while not following.is_owned:
            await asyncio.sleep(0.01)
    await former.groups.confirm(group)
    group.confirmed_at -= GroupSettings().consumer_session_timeout / SECOND / 2
    with pytest.raises(GroupFailure) as refused:
        await former.groups.confirm(group)
    assert refused.value.error is GroupError.NOT_COORDINATOR
    await new.groups.confirm(following)


async def test_a_read_at_a_former_coordinator_ends_it(store: Store) -> None:
    former, new = Broker(store, "a"), Broker(store, "b")
    await former.join("m")
    await new.join("n")
    with pytest.raises(GroupFailure) as refused:
        await former.offset()
    assert refused.value.error is GroupError.NOT_COORDINATOR


async def test_clients_repeat_what_the_filer_does_not_take(store: Store) -> None:
    broker = Broker(store, "a")
    assert await broker.commit(3) is GroupError.NONE
    broker.files.failure = StoreUnavailable("the filer is away")
    assert await broker.commit(4) is GroupError.COORDINATOR_NOT_AVAILABLE
    assert (await broker.join("m")).error is GroupError.COORDINATOR_NOT_AVAILABLE
    broker.files.failure = None
    assert await broker.offset() == 3
    assert (await broker.join("m")).generation == 1


async def test_a_write_whose_ack_was_lost_is_no_other_coordinator(store: Store) -> None:
    broker = Broker(store, "a")
    member = await broker.join("m")
    broker.files.loses_acks = True
    assert await broker.commit(4, "m", member.generation) is GroupError.COORDINATOR_NOT_AVAILABLE
    assert await broker.commit(5, "m", member.generation) is GroupError.NONE
    assert await broker.offset() == 5


async def test_the_node_with_the_highest_hash_is_the_coordinator(store: Store) -> None:
    broker = Broker(store, "a")
    broker.others = {f"other-{number}": f"127.0.0.1:{number + 2}" for number in range(200)}
    node = broker.groups.node_of("g")
    assert node is not None and node.port != 1
    with pytest.raises(GroupFailure) as refused:
        await broker.join("m")
    assert refused.value.error is GroupError.NOT_COORDINATOR


async def test_an_owner_continues_while_the_list_of_nodes_changes_and_moves_when_it_stays(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(store, "a")
    member = await broker.join("m")
    broker.others = {f"other-{number}": f"127.0.0.1:{number + 2}" for number in range(200)}
    assert await broker.commit(1, "m", member.generation) is GroupError.NONE
    assert broker.groups.coordinates("g")
    monkeypatch.setattr(coordinators, "CHECK_SECONDS", 0.01)
    broker = Broker(store, "a")
    await broker.join("m")
    broker.others = {f"other-{number}": f"127.0.0.1:{number + 2}" for number in range(200)}
    await until_forgotten(broker)
    assert not broker.groups.coordinates("g")


@pytest.mark.parametrize("name", ["", "x" * 250])
async def test_ids_of_groups_are_bounded(store: Store, name: str) -> None:
    with pytest.raises(GroupFailure) as refused:
        await Broker(store, "a").groups.group(name)
    assert refused.value.error is GroupError.INVALID_GROUP_ID


async def test_a_request_that_has_a_group_which_is_dropped_is_answered(store: Store) -> None:
    broker = Broker(store, "a")
    await broker.join("m")
    group = await broker.groups.group("g")
    group.drop(GroupError.NOT_COORDINATOR)
    assert await group.change(lambda it: it) is GroupError.NOT_COORDINATOR
    assert group.act(lambda now: group.machine.heartbeat("m", None, 1, now)) is GroupError.NOT_COORDINATOR


async def test_the_document_of_a_group_with_members_is_written_now_and_then(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinators, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(coordinators, "TOUCH_SECONDS", 0.0)
    broker = Broker(store, "a")
    joined = await broker.join("m")
    before = await broker.groups.read("g")
    assert before.active_at > 0
    async with asyncio.timeout(HANG_GUARD):
        while (stored := await broker.groups.read("g")).active_at == before.active_at:
            await asyncio.sleep(0.01)
    assert stored.generation == joined.generation
