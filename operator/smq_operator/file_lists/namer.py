"""Runs beside the reconcile loop and gives every sealed segment of every topic its file list.

It is level-triggered: the index says which segments have none, so no state has to survive a leader. It works on one
topic at a time, and nothing waits for it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping

import structlog

from smq_core.errors import SmqError
from smq_core.file_lists.file_list import FileList
from smq_core.model.entities import Topic
from smq_operator.file_lists.topic_file_lists import CHECK_AGAIN_AFTER_US, PassResult, TopicFileLists
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.runtime.clock import Clock
from smq_operator.runtime.store_pool import StorePool
from smq_operator.runtime.task_runner import TaskRunner

log = structlog.get_logger(__name__)

PAUSE_SECONDS = 1.0


class FileListNamer:
    """See the module's docstring. Use it on the event loop; its counters are for the metrics."""

    def __init__(
        self,
        *,
        topics: Mapping[str, ManagedTopic],
        store: StorePool,
        tasks: TaskRunner,
        clock: Clock,
        check_again_after_us: int = CHECK_AGAIN_AFTER_US,
        has_small_files: Callable[[FileList], bool] = lambda file_list: False,
    ) -> None:
        self._topics = topics
        self._store = store
        self._problems = tasks.problems
        self._now = clock
        self._check_again_after_us = check_again_after_us
        self._has_small_files = has_small_files
        self._small_files: dict[str, Mapping[str, str]] = {}
        """What the last pass has found, by uid."""
        self._file_lists: dict[str, TopicFileLists] = {}
        """By uid."""
        self._complete: dict[str, tuple[int, int]] = {}
        """At how many index changes every segment had a file list, and until when that need not be checked, by uid."""
        self._reported: dict[str, set[str]] = {}
        """The paths of documents that are reported as problems, by uid."""
        self.named: Counter[str] = Counter()
        """File lists that were named in an index, by who wrote them: ``broker`` or ``leader``."""
        self.failures = 0

    def small_files(self, uid: str) -> Mapping[str, str]:
        """The file lists with small files worth merging, by segment, as they were last read."""
        return self._small_files.get(uid, {})

    async def run(self) -> None:
        """Runs until it is cancelled."""
        while True:
            more = False
            for managed in list(self._topics.values()):
                if managed.topic is not None and managed.index.is_read and not managed.deleted:
                    more |= await self._run_guarded(managed, managed.topic)
            self._drop_unmanaged_topics()
            await asyncio.sleep(0 if more else PAUSE_SECONDS)

    async def _run_guarded(self, managed: ManagedTopic, topic: Topic) -> bool:
        """Logs and counts a failure. The next pass tries again, and other topics are not affected."""
        try:
            return await self._run_topic(managed, topic)
        except SmqError as error:
            self.failures += 1
            log.warning("file_lists.failed", topic=topic.name, error=error.code, message=error.message)
        except Exception:
            self.failures += 1
            log.exception("file_lists.failed", topic=topic.name)
        return False

    async def _run_topic(self, managed: ManagedTopic, topic: Topic) -> bool:
        """One pass. Returns whether the next one can go on at once."""
        now, (changes, until) = self._now(), self._complete.get(topic.uid, (-1, 0))
        if changes == managed.index.changes and now < until:
            return False
        file_lists = self._file_lists.get(topic.uid)
        if file_lists is None:
            file_lists = TopicFileLists(
                topic, check_again_after_us=self._check_again_after_us, has_small_files=self._has_small_files
            )
            self._file_lists[topic.uid] = file_lists
        seen = managed.index.changes
        result = await self._store.run(
            file_lists.run, list(managed.index.sealed.values()), now, self._store.retry_policy
        )
        self._report_problems(topic, file_lists)
        self._small_files[topic.uid] = dict(file_lists.small_files)
        if managed.topic is None or managed.topic.uid != topic.uid:
            return False
        self._record(managed, topic, result)
        if result.failure is not None:
            raise result.failure
        if file_lists.complete and seen == managed.index.changes:
            self._complete[topic.uid] = seen, now + self._check_again_after_us
        return result.more

    def _record(self, managed: ManagedTopic, topic: Topic, result: PassResult) -> None:
        managed.index.name_file_lists(result.named)
        for segment in result.named:
            self.named["leader" if segment in result.built else "broker"] += 1
        if result.named:
            log.info("file_lists.named", topic=topic.name, segments=sorted(result.named), built=sorted(result.built))

    def _report_problems(self, topic: Topic, file_lists: TopicFileLists) -> None:
        """A segment whose file list cannot be read is a problem of the leader until it has another one."""
        found = dict(file_lists.problems.values())
        for path, reason in found.items():
            message = (
                f"{reason}. If it is not replaced soon, delete it: then readers walk the chunk chain of the segment, "
                "which takes longer"
            )
            self._problems.quarantine(path, message, topic.name)
        for path in self._reported.get(topic.uid, set()) - found.keys():
            self._problems.readable(path)
        self._reported[topic.uid] = set(found)

    def _drop_unmanaged_topics(self) -> None:
        """Drops topics that are not managed any more, and their problems."""
        living = {managed.topic.uid for managed in self._topics.values() if managed.topic is not None}
        for uid in self._file_lists.keys() - living:
            del self._file_lists[uid]
            self._complete.pop(uid, None)
            self._small_files.pop(uid, None)
            for path in self._reported.pop(uid, ()):
                self._problems.readable(path)
