"""The leader's part after the commit. The store is in memory, and no broker takes part."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from smq_core.errors import SmqError, StoreUnavailable
from smq_core.model.atomic_publish import (
    AppState,
    AtomicFile,
    AtomicPublish,
    AtomicPublishes,
    CommitResult,
    LayoutMark,
    claim_app,
    commit_version,
    complete_version,
)
from smq_core.model.entities import Column, Topic, TopicSchema, TopicSpec
from smq_core.producing.roll_forward import RowRange
from smq_operator.api.publishes import _Commit, _write
from smq_operator.publishing import completer
from smq_operator.publishing.completer import PublishCompleter, _Attempt
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.runtime.store_pool import StorePool
from smq_operator.runtime.task_runner import TaskRunner
from smq_proto.v1 import publishes_pb2
from smq_storage.catalog import paths
from smq_storage.catalog.atomic_publishes import change_publishes, read_publishes
from smq_storage.catalog.layouts import put_layout, read_layout
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store, StoredObject, open_store
from support import virtual_time
from support.data import uploads
from support.data.raw_flight import rows
from support.data.sealed_topic import make_topic, segment_name
from support.waiting import HANG_GUARD

NEW = TopicSchema(1, (Column("key", "binary", nullable=True), Column("value", "binary", nullable=True)))
TOPIC = Topic("default/t", "uid", TopicSpec(partitions=8))


class FailingReads:
    """A store whose reads fail with errors that no store should have."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.failing = True

    def get(self, path: str) -> StoredObject:
        if self.failing:
            raise ZeroDivisionError("a mistake")
        return self._store.get(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


@pytest.fixture
def file(store: Store) -> AtomicFile:
    table = pa.Table.from_batches([rows([b"a", b"b"], partition=p) for p in (1, 5)])
    written = uploads.write(store, TOPIC.uid, "u.parquet", table)
    return AtomicFile(
        upload="u.parquet", etag=written.etag, rows=4, bytes=written.size, timestamp_min=1, timestamp_max=4
    )


def managed_topic() -> ManagedTopic:
    return cast(ManagedTopic, SimpleNamespace(topic=TOPIC, layout=object(), deleted=False, unfinished_publishes={}))


def uploaded(store: Store) -> list[str]:
    return [paths.upload_name(it.path) for it in store.list(paths.UPLOADS)]


def test_a_mistake_is_reported_and_the_publish_is_tried_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completer, "FAILURE_RETRY_SECONDS", 0.0)
    monkeypatch.setattr(completer, "RETRY_SECONDS", 0.0)
    reads = FailingReads(store)

    async def complete() -> None:
        managed = managed_topic()
        pool = StorePool(cast(Store, reads), None)
        found = PublishCompleter(topics={TOPIC.name: managed}, store=pool, tasks=TaskRunner(), clock=lambda: 0)
        task = asyncio.create_task(found._complete(TOPIC, "etl"))
        async with asyncio.timeout(HANG_GUARD):
            while not found.problems and not task.done():
                await asyncio.sleep(0)
            assert "a mistake" in found.problems[TOPIC.uid, "etl"]
            reads.failing = False
            await task
        assert not found.problems

    asyncio.run(complete())


@virtual_time.virtual_time
async def test_a_document_that_could_not_be_read_is_read_again_soon() -> None:
    class UnavailableAtFirst(FailingReads):
        def get(self, path: str) -> StoredObject:
            if self.failing:
                self.failing = False
                raise StoreUnavailable("broken by the test")
            return store.get(path)

    store = open_store("memory://")
    commit_unfinished(
        store, AtomicFile(upload="u.parquet", etag="etag", rows=4, bytes=100, timestamp_min=1, timestamp_max=4)
    )
    managed = managed_topic()
    pool = StorePool(cast(Store, UnavailableAtFirst(store)), None)
    found = PublishCompleter(topics={TOPIC.name: managed}, store=pool, tasks=TaskRunner(), clock=virtual_time.now)
    running = asyncio.ensure_future(found.run())
    await asyncio.sleep(0.5)
    assert not managed.unfinished_publishes
    await asyncio.sleep(2)
    assert managed.unfinished_publishes == {"etl": 7}
    running.cancel()


def commit_unfinished(store: Store, file: AtomicFile) -> None:
    def change(step: Callable[[AtomicPublishes], AtomicPublishes]) -> None:
        change_publishes(store, TOPIC.name, TOPIC.uid, step, RetryPolicy())

    change(lambda it: claim_app(it, "etl", "me", "p", 0))
    change(lambda it: commit_version(it, "etl", "me", 1, "r", [file], LayoutMark(1, (0,), 1), 7)[0])


def test_an_unfinished_publish_is_seen_until_it_is_complete(
    store: Store, file: AtomicFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic has no layout, so nothing can be written."""
    monkeypatch.setattr(completer, "RETRY_SECONDS", 0.0)
    commit_unfinished(store, file)
    managed = managed_topic()

    async def complete() -> None:
        tasks = TaskRunner()
        found = PublishCompleter(
            topics={TOPIC.name: managed},
            store=StorePool(store, None),
            tasks=tasks,
            clock=lambda: 0,
        )
        await found._check(managed, TOPIC)
        assert managed.unfinished_publishes == {"etl": 7}
        completed = partial(complete_version, app="etl", epoch=1, now=0)  # as another leader does
        change_publishes(store, TOPIC.name, TOPIC.uid, completed, RetryPolicy())
        async with asyncio.timeout(HANG_GUARD):
            while not tasks.idle:
                await asyncio.sleep(0)
        assert not managed.unfinished_publishes

    asyncio.run(complete())


def test_segments_that_need_a_newer_file_share_one_copy(store: Store, file: AtomicFile) -> None:
    async def copy_for_segments() -> set[str]:
        shared = PublishCompleter(topics={}, store=StorePool(store, None), tasks=TaskRunner(), clock=lambda: 0)
        publish, attempt = AtomicPublish(1, (file,), LayoutMark(1, (0,), 1), 0), _Attempt(1)
        old = TopicSchema(0, NEW.columns)
        ranges = [
            RowRange(file=0, first_row=2 * n, rows=2, partition_min=p, partition_max=p) for n, p in enumerate((1, 5))
        ]
        found = await asyncio.gather(
            *(shared._files_for(TOPIC, publish, [it], (old, NEW), attempt) for it in ranges * 3)
        )
        names = {it[0].upload for it in found}
        # Two segments rejected the same copy, because it is too old by now.
        await asyncio.gather(*(shared._renew(TOPIC, publish, 0, *names, (old, NEW), attempt) for _ in ranges))
        return names

    names = asyncio.run(copy_for_segments())
    assert len(names) == 1 and file.upload not in names
    assert len(uploaded(store)) == 3, "the file, its copy, and the copy of that"


def commit(store: Store, topic: Topic, file: AtomicFile, version: int) -> None:
    def committed(it: AtomicPublishes) -> AtomicPublishes:
        return commit_version(it, "etl", "me", version, f"r{version}", [file], LayoutMark(1, (1,), 2), version)[0]

    change_publishes(store, topic.name, topic.uid, committed, RetryPolicy())


def test_what_was_acked_of_a_version_says_nothing_of_the_next_one(store: Store) -> None:
    """Another leader has completed the former version, and the app has published another one since."""
    topic = make_topic(store, 1)
    table = pa.Table.from_batches([rows([b"a", b"b"], partition=1)])
    written = uploads.write(store, topic.uid, "u.parquet", table)
    file = AtomicFile(
        upload="u.parquet", etag=written.etag, rows=2, bytes=written.size, timestamp_min=1, timestamp_max=2
    )
    change_publishes(store, topic.name, topic.uid, lambda it: claim_app(it, "etl", "me", "p", 0), RetryPolicy())

    async def try_both() -> None:
        completing = PublishCompleter(topics={}, store=StorePool(store, None), tasks=TaskRunner(), clock=lambda: 0)
        commit(store, topic, file, 1)
        epoch = app_of(store, topic).epoch
        completing._attempts[topic.uid, "etl"] = _Attempt(epoch, acked={1})
        change_publishes(store, topic.name, topic.uid, lambda it: complete_version(it, "etl", epoch, 0), RetryPolicy())
        commit(store, topic, file, 2)
        assert app_of(store, topic).epoch != epoch
        with pytest.raises(SmqError):  # no broker answers
            await completing._try(topic, "etl")
        assert app_of(store, topic).unfinished is not None, "none of its rows is in the log"

    asyncio.run(try_both())


def app_of(store: Store, topic: Topic) -> AppState:
    app = read_publishes(store, topic.name, topic.uid).app("etl")
    assert app is not None
    return app


def test_the_mark_of_a_commit_has_the_segments_that_opened_before_it(store: Store) -> None:
    """A segment that opens between the two readings may get rows of the publish."""
    topic = make_topic(store, 1)
    change_publishes(store, topic.name, topic.uid, lambda it: claim_app(it, "etl", "me", "p", 0), RetryPolicy())
    document = paths.publishes(topic.name, topic.uid)

    class OpensMeanwhile:
        """A segment opens while the document is read."""

        opened = False

        def get(self, path: str) -> StoredObject:
            found = store.get(path)
            if path == document and not self.opened:
                self.opened = True
                layout, etag = cast(Any, read_layout(store, topic.name, topic.uid))
                later = replace(layout.segments[0], name=segment_name(2), number=2)
                put_layout(store, replace(layout, segments=(later,), next_number=3, writer="x"), etag)
            return found

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

    request = publishes_pb2.AtomicPublishRequest(app="etl", owner="me", version=1, request="r")
    made = _Commit(
        request, [AtomicFile(upload="u.parquet", etag="etag", rows=4, bytes=100, timestamp_min=1, timestamp_max=4)], 0
    )
    assert _write(cast(Store, OpensMeanwhile()), topic, made, RetryPolicy()) is CommitResult.COMMITTED
    publish = app_of(store, topic).unfinished
    assert publish is not None and publish.layout.segments == (2,)
