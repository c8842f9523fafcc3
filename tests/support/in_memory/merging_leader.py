"""One leader's namer and merger of small files over a store in memory, which the caller runs pass by pass."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from smq_core.model.entities import SECOND, Topic
from smq_operator.compaction.small_file_merger import SmallFileMerger
from smq_operator.file_lists.topic_file_lists import TopicFileLists
from smq_operator.platform_port import DesiredTopic
from smq_operator.reconcile.topics.index_copy import IndexCopy
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.runtime.merge_settings import MergeSettings
from smq_operator.runtime.store_pool import StorePool
from smq_operator.runtime.task_runner import TaskRunner
from smq_storage.catalog import sealed_index
from smq_storage.compaction.file_list_switch import plan_small_files
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store
from support.data.small_chunks import NAME, UID
from support.in_memory.quiet_broker import CountingStore

RETRY_POLICY = RetryPolicy(2.0)
# A time after all seals at which nothing is waited for.
LATE = 1000 * SECOND


class MergingLeader:
    """Its ``time`` stands still unless the caller advances it."""

    def __init__(
        self,
        store: CountingStore,
        topic: Topic,
        settings: MergeSettings | None = None,
        pool: ThreadPoolExecutor | None = None,
    ) -> None:
        self.store, self.topic, self.time = cast(Store, store), topic, LATE
        settings = settings or MergeSettings(after_us=0)
        self.managed = ManagedTopic(
            DesiredTopic(name=topic.name, spec=topic.spec), topic, index=IndexCopy(is_read=True)
        )
        self.managed.index.merge(sealed_index.load(self.store, NAME, UID))
        self.file_lists = TopicFileLists(
            topic, has_small_files=lambda file_list: bool(plan_small_files(file_list, settings.policy))
        )
        self.tasks = TaskRunner()
        self.merger = SmallFileMerger(
            topics={NAME: self.managed},
            source=self,
            store=StorePool(self.store, pool, RETRY_POLICY),
            tasks=self.tasks,
            clock=lambda: self.time,
            settings=settings,
        )

    def small_files(self, uid: str) -> Mapping[str, str]:
        assert uid == UID
        return self.file_lists.small_files

    def read_file_lists(self) -> None:
        """A pass of the namer, which reads the file lists that it does not know yet."""
        self.file_lists.run(self.store, list(self.managed.index.sealed.values()), self.time, RETRY_POLICY)

    async def merge(self) -> None:
        self.read_file_lists()
        await self.merger.run_pass()

    @property
    def problems(self) -> dict[str, str]:
        return {it.where: it.message for it in self.tasks.problems.all()}
