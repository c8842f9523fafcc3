"""Writes the positions of loaded groups to the filer.

At most one PUT per group is in flight; commits that arrive meanwhile share the next PUT, and each returns when its PUT
is done. A PUT that finds another leader's file ends the group here.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

from smq_core.errors import Conflict, Unavailable, UnknownTopic
from smq_core.reading.segment_dag import is_removed
from smq_operator.groups.loaded_group import LoadedGroup
from smq_operator.runtime.clock import Clock
from smq_operator.runtime.store_pool import StorePool
from smq_operator.runtime.task_runner import TaskRunner
from smq_storage.catalog import group_positions as files
from smq_storage.catalog.group_positions import CommittedPositions

WRITE_RETRY_INTERVAL_SECONDS = 0.5


class PositionWriter:
    """``on_failure`` takes a group that this leader cannot write any more, and the error. Use it on the event loop."""

    def __init__(
        self, store: StorePool, tasks: TaskRunner, clock: Clock, on_failure: Callable[[LoadedGroup, Exception], None]
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._now = clock
        self._on_failure = on_failure

    async def commit(self, it: LoadedGroup) -> None:
        """Returns when the positions that the group has now are in the filer."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        it.waiters.append(done)
        self.start(it)
        await done

    def start(self, it: LoadedGroup) -> None:
        """Begins to write what is pending, if that has not begun."""
        if it.writer is None or it.writer.done():
            it.writer = self._tasks.spawn(self._write_all(it))

    async def _write_all(self, it: LoadedGroup) -> None:
        """Writes until nothing is pending. However it ends, every commit that waits is answered."""
        try:
            while it.group.pending or it.touch_due:
                it.waiters_in_flight, it.waiters = it.waiters, []
                await self._write_once(it)
        except (Conflict, UnknownTopic) as error:
            self._on_failure(it, error)
        except BaseException:
            self._on_failure(it, Unavailable("the leader stopped to write the group's positions: commit again"))
            raise

    async def _write_once(self, it: LoadedGroup) -> None:
        """One PUT. Raises Conflict or UnknownTopic if the group is no longer this leader's."""
        now = self._now()
        committed_at, it.touch_due = now if it.group.pending else it.committed_at, False
        mine = CommittedPositions(
            generation=it.group.generation,
            positions=it.group.begin_flush(),
            writer=uuid.uuid4().hex,
            committed_at=committed_at,
            last_active_at=now,
            known_losses={s: upto for s, upto in it.known_losses.items() if not is_removed(s, it.group.removed)},
            epoch=it.group.epoch,
        )
        try:
            await self._put(it, mine)
        except (Conflict, UnknownTopic):
            raise
        except Exception as error:
            it.group.flush_failed()
            it.touch_due = True
            it.answer_in_flight(error)
            await asyncio.sleep(WRITE_RETRY_INTERVAL_SECONDS)
            return
        it.group.flushed(self._now())
        it.committed_at, it.written_at = committed_at, now
        it.answer_in_flight(None)
        if not it.group.pending and not it.touch_due:
            it.answer_waiting(None)  # commits that arrived during the PUT contain nothing but what it wrote

    async def _put(self, it: LoadedGroup, mine: CommittedPositions) -> None:
        topic, name = it.topic, it.group.name
        if it.written:
            # The outcome of an earlier PUT is unknown; it may have written the current file.
            stored, etag = await self._store.run(files.read_positions, topic.name, topic.uid, name)
            if etag is not None and stored.writer in it.written:
                it.etag = etag
        it.written.add(mine.writer)
        it.etag = await self._store.run(
            files.put_positions, topic.name, topic.uid, name, mine, it.etag, self._store.retry_policy
        )
        it.written.clear()
