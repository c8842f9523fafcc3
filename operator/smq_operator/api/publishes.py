"""The API for atomic publishes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from smq_core.access.rights import Right, topic_right
from smq_core.errors import ProducerFenced, Unavailable, UnknownTopic
from smq_core.model.atomic_publish import (
    AppState,
    AtomicFile,
    AtomicPublishes,
    CommitResult,
    LayoutMark,
    claim_app,
    commit_version,
)
from smq_core.model.entities import Layout, Micros, Topic
from smq_core.model.schema_evolution import newest_schema
from smq_operator.api.rpc_errors import unary_handler
from smq_operator.publishing.completer import PublishCompleter
from smq_operator.publishing.files import check_file
from smq_operator.reconcile.topics.directory import TopicDirectory
from smq_operator.runtime.clock import Clock
from smq_operator.runtime.readiness import Readiness
from smq_operator.runtime.store_pool import StorePool
from smq_operator.security.access.access_control import AccessControl
from smq_operator.security.callers import current_caller
from smq_proto.v1 import publishes_pb2
from smq_storage.catalog.atomic_publishes import change_publishes, read_publishes
from smq_storage.catalog.filer_time import read_filer_time
from smq_storage.catalog.layouts import read_layout
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store

# How long a call waits for the publish to become complete, before the client repeats it.
WAIT_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishService:
    """ClaimApp and PublishAtomically."""

    readiness: Readiness
    topics: TopicDirectory
    completer: PublishCompleter
    store: StorePool
    clock: Clock
    max_upload_age: Micros
    access: AccessControl | None = None
    """None in a release without security."""

    @unary_handler
    async def ClaimApp(self, request: publishes_pb2.ClaimAppRequest) -> publishes_pb2.AppReply:
        topic = self._topic(request.topic)
        claimed = await self._claimed(topic, request)
        app = (await self.store.run(_change, topic, claimed, self.store.retry_policy)).app(request.app)
        return self._reply(topic, app, CommitResult.COMMITTED, complete=app is None or app.unfinished is None)

    @unary_handler
    async def PublishAtomically(self, request: publishes_pb2.AtomicPublishRequest) -> publishes_pb2.AppReply:
        """Returns when the rows are in the log, or after ``WAIT_SECONDS``; then the client repeats the call."""
        topic = self._topic(request.topic)
        commit = _Commit(request, [_file_from_pb(file) for file in request.files], self.clock())
        present = await self.store.run(read_publishes, topic.name, topic.uid)
        try:
            unchecked, result = commit.apply(present, LayoutMark(0, (), 0))
        except ProducerFenced:  # or what was read is from before the claim
            present = await self.store.run(_newest, topic, self.store.retry_policy)
            unchecked, result = commit.apply(present, LayoutMark(0, (), 0))
        if unchecked is not present:
            await self._check_files(topic, commit.files)
            result = await self.store.run(_write, topic, commit, self.store.retry_policy)
        self.completer.committed(topic)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WAIT_SECONDS
        while True:
            app = (await self.store.run(read_publishes, topic.name, topic.uid)).app(request.app)
            left = deadline - loop.time()
            complete = app is not None and app.unfinished is None and _has(app, request.version)
            if complete or left <= 0:
                return self._reply(topic, app, result, complete)
            await self.completer.wait_for_progress(left)

    async def _claimed(
        self, topic: Topic, request: publishes_pb2.ClaimAppRequest
    ) -> Callable[[AtomicPublishes], AtomicPublishes]:
        """The change that claims the app for the caller."""
        caller, now = current_caller(), self.clock()
        may_take_over = True
        if self.access is not None and caller is not None:
            right = topic_right(Right.ADMINISTER, topic.name)
            may_take_over = (await self.access.any_of(caller, [right])).allowed
        new = partial(
            claim_app,
            app=request.app,
            owner=request.owner,
            producer=uuid.uuid4().hex,
            now=now,
            one_off=request.one_off,
            identity=caller.identity if caller is not None else "",
            may_take_over=may_take_over,
        )
        # Written also if nothing changes: an older answer of the filer would return an older last version.
        return lambda document: replace(new(document))

    def _topic(self, name: str) -> Topic:
        managed = self.topics.topic(name)
        if managed.topic is None or managed.layout is None:
            raise Unavailable(f"the leader has not read {managed.name} yet: try again")
        return managed.topic

    async def _check_files(self, topic: Topic, files: Sequence[AtomicFile]) -> None:
        """Once a version is committed its rows must come into the log, so everything is checked before that."""
        layout, now = await self.store.run(_layout, topic), await self.store.run(read_filer_time)
        schema = newest_schema(layout, topic.spec.schema)
        checks = (self.store.run(check_file, topic, file, schema, now, self.max_upload_age) for file in files)
        await asyncio.gather(*checks)

    def _reply(
        self, topic: Topic, app: AppState | None, result: CommitResult, complete: bool
    ) -> publishes_pb2.AppReply:
        return publishes_pb2.AppReply(
            version=app.version if app is not None else None,
            complete=complete,
            problem=self.completer.problems.get((topic.uid, app.app), "") if app is not None else "",
            already_published=result is CommitResult.ALREADY_PUBLISHED,
        )


@dataclass(frozen=True, slots=True)
class _Commit:
    """A request to publish a version."""

    request: publishes_pb2.AtomicPublishRequest
    files: Sequence[AtomicFile]
    now: Micros

    def apply(self, document: AtomicPublishes, layout: LayoutMark) -> tuple[AtomicPublishes, CommitResult]:
        it = self.request
        return commit_version(document, it.app, it.owner, it.version, it.request, self.files, layout, self.now)


def _change(
    store: Store, topic: Topic, change: Callable[[AtomicPublishes], AtomicPublishes], retry_policy: RetryPolicy
) -> AtomicPublishes:
    return change_publishes(store, topic.name, topic.uid, change, retry_policy)


def _newest(store: Store, topic: Topic, retry_policy: RetryPolicy) -> AtomicPublishes:
    """The document as it is now. A write without changes proves it: a GET may return what was there a moment ago."""
    return change_publishes(store, topic.name, topic.uid, replace, retry_policy)


def _has(app: AppState, version: int) -> bool:
    """False if what was read is from before the commit of this version."""
    return app.version is not None and app.version >= version


def _write(store: Store, topic: Topic, commit: _Commit, retry_policy: RetryPolicy) -> CommitResult:
    """The commit point. The layout is read after the document, so that no segment with rows is missing in the mark."""
    result = CommitResult.COMMITTED

    def committed(document: AtomicPublishes) -> AtomicPublishes:
        nonlocal result
        changed, result = commit.apply(document, LayoutMark.of(_layout(store, topic)))
        return changed

    change_publishes(store, topic.name, topic.uid, committed, retry_policy)
    return result


def _layout(store: Store, topic: Topic) -> Layout:
    found = read_layout(store, topic.name, topic.uid)
    if found is None or found[0].deleted:
        raise UnknownTopic(f"topic {topic.name} was deleted", topic=topic.name)
    return found[0]


def _file_from_pb(file: publishes_pb2.AtomicPublishRequest.File) -> AtomicFile:
    return AtomicFile(
        upload=file.upload,
        etag=file.etag,
        rows=file.rows,
        bytes=file.bytes,
        timestamp_min=file.timestamp_min,
        timestamp_max=file.timestamp_max,
        schema_version=file.schema_version,
    )
