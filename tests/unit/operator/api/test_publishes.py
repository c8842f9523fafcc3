"""Atomic publishes while GETs return what was there before the last write."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from smq_core.access.rights import Access
from smq_core.model.entities import SECOND, Topic
from smq_operator.api.publishes import PublishService
from smq_operator.publishing.completer import PublishCompleter
from smq_operator.runtime.readiness import Readiness
from smq_operator.runtime.store_pool import StorePool
from smq_operator.runtime.task_runner import TaskRunner
from smq_operator.security.access.access_control import AccessControl
from smq_operator.security.access.audit import AccessAudit
from smq_operator.security.callers import AccessDecision, Caller, set_current_call
from smq_proto.v1 import publishes_pb2
from smq_storage.catalog import paths
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import ObjectMissing, Store, StoredObject, open_store
from support import virtual_time
from support.data import uploads
from support.data.raw_flight import rows
from support.data.sealed_topic import make_topic
from support.in_memory.leader import FakeServicerContext, RpcAborted

RETRY_POLICY = RetryPolicy(2.0)


class OlderAnswers:
    """A store that answers ``older`` GETs of the publishes, after ``skipped`` others, as before the last write."""

    def __init__(self, store: Store, path: str) -> None:
        self._store = store
        self._path = path
        self._before: StoredObject | None = None
        self.older = self.skipped = 0

    def get(self, path: str) -> StoredObject:
        if path == self._path and self.skipped > 0:
            self.skipped -= 1
        elif path == self._path and self.older > 0:
            self.older -= 1
            if self._before is None:
                raise ObjectMissing(path)
            return self._before
        return self._store.get(path)

    def put_new(self, path: str, data: Any) -> str:
        if path == self._path:
            self._before = None
        return self._store.put_new(path, data)

    def put_if(self, path: str, data: Any, etag: str) -> str:
        before = self._store.get(path)
        new = self._store.put_if(path, data, etag)
        if path == self._path:
            self._before = before
        return new

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Service:
    """The leader's service of one topic, without brokers, so a publish of rows is never complete."""

    def __init__(self, access: AccessControl | None = None) -> None:
        store = open_store("memory://")
        self.topic: Topic = make_topic(store, 0)
        self.store = OlderAnswers(store, paths.publishes(self.topic.name, self.topic.uid))
        pool, readiness = StorePool(cast(Store, self.store), None, RETRY_POLICY), Readiness()
        readiness.set_leading()
        managed = SimpleNamespace(name=self.topic.name, topic=self.topic, layout=object())
        topics: Any = SimpleNamespace(topic=lambda name: managed)
        completer = PublishCompleter(topics={}, store=pool, tasks=TaskRunner(), clock=virtual_time.now)
        self._service = PublishService(
            readiness=readiness,
            topics=topics,
            completer=completer,
            store=pool,
            clock=virtual_time.now,
            max_upload_age=3600 * SECOND,
            access=access,
        )

    async def claim(self, owner: str) -> publishes_pb2.AppReply:
        request = publishes_pb2.ClaimAppRequest(topic="t", app="etl", owner=owner)
        return await self._service.ClaimApp(request, FakeServicerContext())  # type: ignore[arg-type]

    async def publish(
        self, owner: str, version: int, *files: publishes_pb2.AtomicPublishRequest.File
    ) -> publishes_pb2.AppReply:
        request = publishes_pb2.AtomicPublishRequest(
            topic="t", app="etl", owner=owner, version=version, request=f"{owner}-{version}", files=files
        )
        return await self._service.PublishAtomically(request, FakeServicerContext())  # type: ignore[arg-type]

    def upload(self) -> publishes_pb2.AtomicPublishRequest.File:
        table = pa.Table.from_batches([rows([b"a", b"b"], partition=1)])
        written = uploads.write(cast(Store, self.store), self.topic.uid, "u.parquet", table)
        return publishes_pb2.AtomicPublishRequest.File(
            upload="u.parquet", etag=written.etag, rows=2, bytes=written.size, timestamp_min=1, timestamp_max=2
        )


@virtual_time.virtual_time
async def test_the_last_version_is_that_of_the_newest_document() -> None:
    service = Service()
    await service.claim("mine")
    await service.publish("mine", 1)
    await service.publish("mine", 2)
    service.store.older = 1
    assert (await service.claim("mine")).version == 2


@virtual_time.virtual_time
async def test_a_version_is_complete_only_when_its_commit_can_be_read() -> None:
    service = Service()
    await service.claim("mine")
    await service.publish("mine", 1)
    file = service.upload()
    assert not (await service.publish("mine", 2, file)).complete, "no broker has the rows"
    service.store.skipped = service.store.older = 1
    reply = await service.publish("mine", 2, file)
    assert not reply.complete and not reply.already_published


@pytest.mark.parametrize(("skipped", "older"), [(0, 1), (0, 2), (1, 1)])
@virtual_time.virtual_time
async def test_who_owns_an_app_is_not_fenced_by_an_answer_from_before_the_claim(skipped: int, older: int) -> None:
    service = Service()
    await service.claim("others")
    await service.publish("others", 1)
    await service.claim("mine")
    service.store.skipped, service.store.older = skipped, older
    reply = await service.publish("mine", 2)
    assert (reply.version, reply.complete, reply.already_published) == (2, True, False)
    with pytest.raises(RpcAborted, match="another owner publishes"):
        await service.publish("others", 3)


@virtual_time.virtual_time
async def test_the_first_owner_of_a_topics_first_app_is_not_fenced_either() -> None:
    service = Service()
    await service.claim("mine")
    service.store.older = 1
    assert (await service.publish("mine", 0)).complete


class Policy:
    """``admin`` administers the topic, and nobody else does."""

    async def allows(self, caller: Caller, access: Access) -> AccessDecision:
        assert access.subresource == "administer" and access.name == "t"
        return AccessDecision(caller.identity == "admin")


@virtual_time.virtual_time
async def test_an_app_is_taken_over_by_its_identity_or_by_an_administrator() -> None:
    verifier: Any = None
    service = Service(AccessControl(verifier, Policy(), AccessAudit(lambda: 0.0)))

    async def claim_as(identity: str, owner: str) -> None:
        set_current_call(Caller(identity=identity, method="test"), "")
        await service.claim(owner)

    await claim_as("alice", "one")
    await claim_as("alice", "two")
    with pytest.raises(RpcAborted, match="one of alice"):
        await claim_as("bob", "three")
    await service.publish("two", 1)
    await claim_as("admin", "four")
    with pytest.raises(RpcAborted, match="one of admin"):
        await claim_as("alice", "five")
