"""Retention that removes sealed segments early, beside leaders that know nothing of it: the operator's own code.

It is for histories whose leaders have no event loop. The files stay, because removal from the index is what matters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from smq_core.errors import SmqError
from smq_core.model.entities import Topic
from smq_operator.cleanup import retention
from smq_operator.cleanup.filer_clock import ClockReading
from smq_storage.catalog import paths
from smq_storage.catalog.topics import CurrentTopic
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.json_codec import to_json
from support.sim.engine.virtual_asyncio import VirtualLoop
from support.sim.engine.world import MS, Process, Steps
from support.sim.filer.blocking_store import BlockingStore
from support.sim.filer.chunk_chain import TOPIC, UID

if TYPE_CHECKING:
    from support.sim.histories.protocol import History


class SealedSegmentRemoval:
    """Keeps that number of messages of sealed segments, read or not. ``is_held`` is as in ``remove_expired``."""

    def __init__(self, history: History, messages: int, is_held: Callable[[Any, Topic, RetryPolicy], bool]) -> None:
        self.history = history
        self.process = Process(history.world, "retention", "retention")
        self.loop = VirtualLoop(self.process)
        self._is_held = is_held
        spec = replace(history.topic.spec, retention_bytes=messages, retention_keeps_unread=False)
        self._topic = replace(history.topic, spec=spec)
        history.checker.spec = spec
        history.store.put_at_once(f"doc/{paths.current(TOPIC)}", to_json(CurrentTopic(UID)))
        self.process.start(self._run())

    def _run(self) -> Steps:
        world = self.history.world
        while True:
            yield world.between(100 * MS, 500 * MS)
            try:
                yield self.loop.start(self._remove())
            except SmqError as error:
                world.note(self.process.name, "", f"retention is put off: {error.message}")

    async def _remove(self) -> None:
        """The leader's own knowledge of who has begun is of no interest here, so it is the truth."""
        world, store = self.history.world, BlockingStore(self.history.store, self.process)
        begun = {(it.incarnation, name) for it in self.history.brokers.values() for name in it.begun()}

        def remove() -> None:
            clocks, policy = ClockReading(leader=world.now, filer=world.now), RetryPolicy(3.0)
            filer: Any = store
            known = retention.read_consistent(filer, self._topic)
            plan = retention.remove_expired(filer, self._topic, known, [], begun, clocks, policy, self._is_held)
            for removal in plan.removals:
                world.note(self.process.name, removal.segment.name, f"removed: {removal.because}")

        await self.loop.run_in_executor(None, remove)
