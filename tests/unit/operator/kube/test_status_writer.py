"""When a leader compares and writes: on changes, not before it has read enough, and again after a failed API call."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Iterator

import pytest

from smq_operator.kube.client.errors import ApiServerUnreachable, Forbidden, KubeError, NotFound, ResourceConflict
from smq_operator.kube.client.events import EventRecorder
from smq_operator.kube.client.kinds import DEPLOYMENTS, EVENTS, SEGMENTS, TOPICS, Kind, Resource, key_of
from smq_operator.kube.informer.cache import ResourceCache
from smq_operator.kube.status import reconciler
from smq_operator.platform_port import DesiredTopic
from smq_operator.runtime import clock
from smq_operator.runtime.problems import CERTIFICATES
from smq_storage.object_store.store import Store, open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, running_leader
from support.kube.manifest_cases import manifest
from support.kube.resources_in_memory import merged
from support.kube.status_leader import status_reconciler
from support.virtual_time import virtual_time
from support.waiting import wait_until

NAME = "t-0-16-0"


class FakeKubeApi:
    """Resources in memory with versions. The cache gets each change at once. Each call raises ``error`` if set."""

    def __init__(self) -> None:
        self.there: dict[tuple[Kind, str], Resource] = {}
        self.events: list[Resource] = []
        self.cache = ResourceCache()
        self.error: KubeError | None = None
        self.calls = self.version = 0

    def put(self, kind: Kind, resource: Resource) -> Resource:
        self.version += 1
        made = copy.deepcopy(resource)
        made["metadata"].setdefault("uid", f"uid-{self.version}")
        made["metadata"]["resourceVersion"] = str(self.version)
        self.there[kind, made["metadata"]["name"]] = made
        self.cache.put(kind, copy.deepcopy(made))
        return copy.deepcopy(made)

    def remove(self, kind: Kind, name: str) -> None:
        self.cache.drop(kind, self.there.pop((kind, name)))

    async def create(self, kind: Kind, body: Resource) -> Resource:
        self._called()
        if (kind, body["metadata"]["name"]) in self.there:
            raise ResourceConflict("there already")
        return self.put(kind, body)

    async def patch(self, kind: Kind, name: str, namespace: str, change: Resource, subresource: str = "") -> Resource:
        if kind is not EVENTS:
            self._called()
        if (kind, name) not in self.there:
            raise NotFound(name)
        return self.put(kind, merged(self.there[kind, name], change))

    async def patch_status(self, kind: Kind, name: str, namespace: str, status: Resource) -> Resource:
        return await self.patch(kind, name, namespace, {"status": status})

    async def delete(self, kind: Kind, name: str, namespace: str = "", uid: str | None = None) -> None:
        self._called()
        self.remove(kind, name)

    async def create_event(self, body: Resource) -> Resource:
        self.events.append(body)
        return body

    def _called(self) -> None:
        self.calls += 1
        if self.error is not None:
            raise self.error


class TopicOnFakeApi:
    """Topic ``default/t`` on an API in memory, for one leader after another over the same brokers and store."""

    def __init__(self) -> None:
        self.server = FakeKubeApi()
        self.store: Store = open_store("memory://")
        self.fleet = FakeFleet(self.store)
        self.platform = FakePlatform()
        for number in range(3):
            self.fleet.add(f"b{number}")
        made = manifest({"partitions": 16}, name="t")
        made["metadata"] |= {"namespace": "default", "generation": 1}
        self.server.put(TOPICS, made)
        self.platform.add_topic("default/t")
        self.platform.topics["default/t"] = DesiredTopic(
            name="default/t", spec=self.platform.topics["default/t"].spec, uid=self.topic_uid
        )

    @property
    def topic_uid(self) -> str:
        return str(self.topic["metadata"]["uid"])

    @property
    def topic(self) -> Resource:
        return self.server.there[TOPICS, "t"]

    @property
    def ready(self) -> str:
        found = {c["type"]: c for c in self.topic.get("status", {}).get("conditions", [])}
        return str(found.get("Ready", {}).get("status", ""))

    def phase(self, name: str = NAME) -> str:
        return str(self.server.there.get((SEGMENTS, name), {}).get("status", {}).get("phase", ""))

    def warnings(self) -> set[str]:
        return {event["reason"] for event in self.server.events if event["type"] == "Warning"}


async def run_leaders(
    *works: Callable[[TopicOnFakeApi, LeaderInMemory], Awaitable[None]], warm_up_us: int = 0
) -> TopicOnFakeApi:
    """Each of ``works`` is run beside its own leader, one after the other."""

    topic_on_api = TopicOnFakeApi()
    for work in works:
        leader = LeaderInMemory(topic_on_api.platform, topic_on_api.fleet, topic_on_api.store, warm_up_us)
        events = EventRecorder(topic_on_api.server, "test", "p", clock.now)
        kept = status_reconciler(leader, topic_on_api.server, topic_on_api.server.cache, events)
        tasks = [asyncio.create_task(kept.run()), asyncio.create_task(events.run())]
        async with running_leader(leader):
            await work(topic_on_api, leader)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return topic_on_api


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(reconciler, "MIN_INTERVAL_SECONDS", 0.02)
    monkeypatch.setattr(reconciler, "POLL_INTERVAL_SECONDS", 0.1)
    monkeypatch.setattr(reconciler, "INITIAL_BACKOFF_SECONDS", 0.05)
    yield


async def shown(topic_on_api: TopicOnFakeApi, leader: LeaderInMemory) -> None:
    await wait_until(lambda: topic_on_api.phase() == "Open" and topic_on_api.ready == "True", what="it is shown")


async def wait_for_no_writes(topic_on_api: TopicOnFakeApi) -> None:
    """Returns when the loop has looked several times, and nothing was written."""
    calls = topic_on_api.server.calls
    await asyncio.sleep(0.5)
    assert topic_on_api.server.calls == calls


@virtual_time
async def test_it_is_shown_once_and_then_left_alone() -> None:
    async def work(topic_on_api: TopicOnFakeApi, leader: LeaderInMemory) -> None:
        await shown(topic_on_api, leader)
        await wait_for_no_writes(topic_on_api)

    topic_on_api = await run_leaders(work)
    assert {event["reason"] for event in topic_on_api.server.events} >= {"Create"}


@virtual_time
async def test_a_new_leader_writes_no_status_before_it_knows_it() -> None:
    """It has no report of a broker and no layout yet, and the conditions that are shown may still be true."""

    async def next_one(topic_on_api: TopicOnFakeApi, leader: LeaderInMemory) -> None:
        status = copy.deepcopy(topic_on_api.topic["status"])
        ready = next(c for c in status["conditions"] if c["type"] == "Ready")
        ready |= {"status": "False", "reason": "SealBlocked", "message": "of the leader before"}
        topic_on_api.server.put(TOPICS, topic_on_api.topic | {"status": status})
        await wait_until(lambda: leader.topics.all_layouts_known)
        await wait_for_no_writes(topic_on_api)
        assert topic_on_api.ready == "False"

    await run_leaders(shown, next_one, warm_up_us=60_000_000)


@pytest.mark.parametrize(
    ("error", "warns"),
    [
        (ApiServerUnreachable("no answer"), set()),
        (ResourceConflict("another writer was first"), {"StatusNotWritten"}),
        (Forbidden("the operator may not create segments"), {"StatusNotWritten"}),
        (Forbidden("the namespace is being terminated"), set()),
    ],
    ids=str,
)
@virtual_time
async def test_what_could_not_be_written_is_written_later(error: KubeError, warns: set[str]) -> None:
    async def work(topic_on_api: TopicOnFakeApi, leader: LeaderInMemory) -> None:
        topic_on_api.server.error = error
        await wait_until(lambda: topic_on_api.server.calls >= 4, what="it tries again")
        assert topic_on_api.phase() == "" and leader.topics["default/t"].layout is not None
        topic_on_api.server.error = None
        await shown(topic_on_api, leader)
        await wait_for_no_writes(topic_on_api)

    assert (await run_leaders(work)).warnings() == warns


@virtual_time
async def test_what_is_wrong_in_the_leader_is_an_event() -> None:
    async def work(topic_on_api: TopicOnFakeApi, leader: LeaderInMemory) -> None:
        await shown(topic_on_api, leader)
        metadata = {"name": "smq-operator", "namespace": "smq", "uid": "d", "resourceVersion": "7", "labels": {}}
        metadata["labels"] = {"seaweedmq.io/component": "operator"}  # type: ignore[assignment]
        topic_on_api.server.cache.put(DEPLOYMENTS, {"metadata": metadata})
        leader.tasks.problems.quarantine("a/b.json", "a/b.json is damaged", "default/t")
        leader.tasks.problems.report("task fleet", "the task fleet failed")
        leader.tasks.problems.show(CERTIFICATES, "the authority expires")
        expected = {"DocumentUnreadable", "LeaderTaskFailed", "CertificatesNotReady"}
        await wait_until(lambda: topic_on_api.warnings() == expected, what="Events")
        about = {event["reason"]: event["involvedObject"]["kind"] for event in topic_on_api.server.events}
        assert (about["DocumentUnreadable"], about["LeaderTaskFailed"]) == ("Topic", "Deployment")
        assert about["CertificatesNotReady"] == "Deployment"
        leader.tasks.problems.show(CERTIFICATES, "")
        assert CERTIFICATES not in {problem.where for problem in leader.tasks.problems.all()}

    await run_leaders(work)


@virtual_time
async def test_a_segment_that_is_deleted_comes_back() -> None:
    async def work(topic_on_api: TopicOnFakeApi, leader: LeaderInMemory) -> None:
        await shown(topic_on_api, leader)
        topic_on_api.server.remove(SEGMENTS, NAME)
        await wait_until(lambda: topic_on_api.phase() == "Open", "it is back")

    await run_leaders(work)


@virtual_time
async def test_the_resources_of_a_deleted_topic_are_left_to_the_garbage_collector() -> None:
    async def work(topic_on_api: TopicOnFakeApi, leader: LeaderInMemory) -> None:
        await shown(topic_on_api, leader)
        del topic_on_api.platform.topics["default/t"]
        topic_on_api.server.remove(TOPICS, "t")
        await wait_until(lambda: not leader.topics)
        topic_on_api.server.remove(SEGMENTS, NAME)
        await wait_for_no_writes(topic_on_api)
        assert not topic_on_api.phase()

    await run_leaders(work)


@virtual_time
async def test_a_new_topic_never_shows_the_state_of_a_former_one_of_its_name() -> None:
    async def work(topic_on_api: TopicOnFakeApi, leader: LeaderInMemory) -> None:
        await shown(topic_on_api, leader)
        former_uid = topic_on_api.topic_uid
        topic_on_api.server.remove(SEGMENTS, NAME)  # by the garbage collector, as its owner is gone
        topic_on_api.server.remove(TOPICS, "t")
        recreated = manifest({"partitions": 16}, name="t")
        recreated["metadata"] |= {"namespace": "default", "generation": 1}
        topic_on_api.server.put(TOPICS, recreated)
        assert topic_on_api.topic_uid != former_uid
        # The cache has the new Topic, and the leader has not followed it yet: it still manages the former one.
        await wait_for_no_writes(topic_on_api)
        managed = leader.topics["default/t"]
        assert managed.topic is not None and managed.topic.uid == former_uid
        assert "status" not in topic_on_api.topic
        assert not [name for kind, name in topic_on_api.server.there if kind is SEGMENTS]
        topic_on_api.platform.topics["default/t"] = DesiredTopic(
            name="default/t", spec=topic_on_api.platform.topics["default/t"].spec, uid=topic_on_api.topic_uid
        )
        await shown(topic_on_api, leader)
        segment = topic_on_api.server.there[SEGMENTS, NAME]
        assert [owner["uid"] for owner in segment["metadata"]["ownerReferences"]] == [topic_on_api.topic_uid]

    await run_leaders(work)


@virtual_time
async def test_a_topic_that_is_being_deleted_gets_nothing_more() -> None:
    async def work(topic_on_api: TopicOnFakeApi, leader: LeaderInMemory) -> None:
        await shown(topic_on_api, leader)
        going = topic_on_api.topic["metadata"] | {"deletionTimestamp": "2024-01-01T00:00:00Z"}
        topic_on_api.server.put(TOPICS, topic_on_api.topic | {"metadata": going})
        topic_on_api.server.remove(SEGMENTS, NAME)
        await wait_for_no_writes(topic_on_api)
        assert not topic_on_api.phase()

    await run_leaders(work)


@virtual_time
async def test_an_older_definition_that_drops_a_field_is_not_written_again_and_again() -> None:
    async def work(topic_on_api: TopicOnFakeApi, leader: LeaderInMemory) -> None:
        await shown(topic_on_api, leader)
        calls = topic_on_api.server.calls
        put = topic_on_api.server.put

        def drop(kind: Kind, resource: Resource) -> Resource:
            """Takes no notice, and so changes no version."""
            return copy.deepcopy(topic_on_api.server.there[kind, key_of(resource)[1]])

        without = {key: value for key, value in topic_on_api.topic["status"].items() if key != "brokers"}
        put(TOPICS, topic_on_api.topic | {"status": without})
        topic_on_api.server.put = drop  # type: ignore[method-assign]
        await wait_until(lambda: topic_on_api.server.calls > calls)
        await wait_for_no_writes(topic_on_api)
        assert topic_on_api.server.calls == calls + 1

    await run_leaders(work)
