"""The leader's side of file lists: the operator's own ``TopicFileLists``, called periodically in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smq_core.errors import SmqError
from smq_operator.file_lists.topic_file_lists import TopicFileLists
from smq_storage.object_store.conditional_writes import RetryPolicy
from support.sim.engine.virtual_asyncio import VirtualLoop
from support.sim.engine.world import MS, SECOND, Steps
from support.sim.filer.blocking_store import BlockingStore
from support.sim.filer.chunk_chain import INDEX

if TYPE_CHECKING:
    from support.sim.leaders.elastic_leader import ElasticLeader

CHECK_EVERY = SECOND
# Shorter than a broker may take, and than an answer of the store may be old.
BUILD_AFTER = SECOND // 2
CHECK_AGAIN_AFTER = 10 * SECOND


class SimulatedFileLists:
    """The file lists as one leader knows them."""

    def __init__(self, leader: ElasticLeader) -> None:
        self.leader = leader
        self.loop = VirtualLoop(leader.process)
        self._filer: Any = BlockingStore(leader.store, leader.process)
        self._retry_policy = RetryPolicy(5.0)
        self._file_lists = TopicFileLists(leader.machine.topic, BUILD_AFTER, CHECK_AGAIN_AFTER)

    def keep(self) -> Steps:
        """Runs passes over the index as this leader reads it, until the leader is dead."""
        leader, world = self.leader, self.leader.world
        while True:
            yield world.between(CHECK_EVERY - 200 * MS, CHECK_EVERY + 200 * MS)
            try:
                found = yield leader.store.get(leader.process, INDEX)
                if found is None:
                    continue
                result = yield self._run(found[0].entries)
            except SmqError as error:
                world.note(leader.process.name, "", f"file lists are put off: {error.message}")
                continue
            for segment, name in result.named.items():
                world.note(leader.process.name, segment, f"the index names {name}")
            for segment, (_, reason) in self._file_lists.problems.items():
                world.note(leader.process.name, segment, f"has a problem: {reason}")

    def _run(self, entries: Any) -> Any:
        async def work() -> Any:
            return await self.loop.run_in_executor(
                None, self._file_lists.run, self._filer, entries, self.leader.clock(), self._retry_policy
            )

        return self.loop.start(work())
