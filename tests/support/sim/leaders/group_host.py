"""The leader's side of a consumer group: core's ``Group`` with its positions in the store.

The first request loads a group and at once writes it with the next thousand of generations. So an earlier leader loses
the compare-and-swap at its next commit and drops the group. Requests are served one after another.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from smq_core.errors import SmqError, StaleGeneration, StoreUnavailable, Unavailable
from smq_core.model.interval_set import IntervalSet
from smq_core.reading.consumer_group import Group
from smq_core.reading.segment_dag import ReadProgress, build_nodes, index_is_stale
from smq_storage.catalog.sealed_index import IndexPage
from support.sim.engine.world import Future, Steps
from support.sim.filer import conditional_puts
from support.sim.filer.chunk_chain import INDEX

if TYPE_CHECKING:
    from support.sim.leaders.protocol_leader import SimulatedLeader

GENERATIONS_PER_LEADER = 1000


class StoredPositions(NamedTuple):
    """The stored state of a group."""

    generation: int
    positions: dict[str, int]
    writer: str


@dataclass(slots=True)
class LoadedGroup:
    group: Group
    etag: str
    written: set[str] = field(default_factory=set)
    """The writer ids of PUTs with an unknown outcome. If the store has one of them, this leader wrote it."""


def path(group: str) -> str:
    return f"group/{group}"


class GroupHost:
    def __init__(self, leader: SimulatedLeader) -> None:
        self.leader = leader
        self.groups: dict[str, LoadedGroup] = {}
        self._requests: deque[tuple[tuple[Any, ...], Future]] = deque()
        self._busy = False

    def call(self, request: tuple[Any, ...]) -> Future:
        answer = Future()
        if request[0] == "join" and request[1] in self.groups:
            return self.leader.process.start(self._rejoin(*request[1:]))
        self._requests.append((request, answer))
        if not self._busy:
            self._busy = True
            self.leader.process.start(self._serve())
        return answer

    def _serve(self) -> Steps:
        while self._requests:
            (what, name, *rest), answer = self._requests.popleft()
            try:
                it = yield from self._loaded(name)
                if what == "join":
                    answer.set(self._join(name, it, *rest))
                elif what == "write":
                    answer.set((yield from self._write(name, it)))
                else:
                    answer.set((yield from self._commit(name, it, *rest)))
            except SmqError as error:
                answer.fail(error)
        self._busy = False

    def _rejoin(self, name: str, member: str, generation: int) -> Steps:
        """Joins a group that is already loaded, without waiting for a commit that is being written."""
        nodes, removed = yield from self._nodes()
        it = self.groups.get(name)
        if it is None:
            raise Unavailable(f"group {name} is served by another leader now: ask again")
        self._refresh(it, nodes, removed)
        if it.group.pending and not it.group.in_flight and not self._busy:
            self.call(("write", name))  # writes commits whose earlier write failed, even if no member waits
        return self._join(name, it, member, generation)

    def _join(self, name: str, it: LoadedGroup, member: str, generation: int) -> Any:
        if it.group.is_outdated_by(generation):
            self.groups.pop(name, None)
            raise Unavailable(f"group {name} was served by another leader since: ask again")
        assignment = it.group.join(member, self.leader.clock(), generation)
        self.leader.checker.assigned(name, it.group)
        return assignment, dict(it.group.reader.nodes)

    def _commit(
        self, name: str, it: LoadedGroup, member: str, generation: int, positions: dict[str, int], epoch: str
    ) -> Steps:
        if it.group.commit(member, generation, positions, epoch):
            yield from self._write(name, it)

    def _write(self, name: str, it: LoadedGroup) -> Steps:
        now = StoredPositions(it.group.generation, dict(it.group.begin_flush()), self.leader.world.unique("g"))
        try:
            if it.written:
                found = yield self.leader.store.get(self.leader.process, path(name))
                if found is not None and found[0].writer in it.written:
                    it.etag = found[1]
            it.written.add(now.writer)
            result = yield from self._put(name, now, it.etag)
        except StoreUnavailable:
            it.group.flush_failed()
            raise
        if not isinstance(result, conditional_puts.PutApplied):
            self.groups.pop(name, None)
            raise StaleGeneration(f"group {name} is served by another leader: join again")
        it.etag = result.etag
        it.written.clear()
        it.group.flushed(self.leader.clock())
        self.leader.checker.assigned(name, it.group)

    def _nodes(self) -> Steps:
        leader = self.leader
        layout = leader.machine.layout
        if layout is None:
            raise Unavailable("there is no layout yet")
        page = yield leader.store.get(leader.process, INDEX)
        index = page[0] if page is not None else IndexPage()
        if index_is_stale(layout, index.entries, index.removed):
            raise Unavailable("the store shows an old index: ask again")
        return build_nodes(index.entries, layout), index.removed

    def _refresh(self, it: LoadedGroup, nodes: Any, removed: IntervalSet) -> None:
        it.group.expire(self.leader.clock())
        it.group.update(nodes, self.leader.clock(), removed)

    def _loaded(self, name: str) -> Steps:
        leader = self.leader
        nodes, removed = yield from self._nodes()
        if name not in self.groups:
            found = yield leader.store.get(leader.process, path(name))
            kept, etag = found if found is not None else (StoredPositions(0, {}, ""), None)
            generation = (kept.generation // GENERATIONS_PER_LEADER + 1) * GENERATIONS_PER_LEADER
            group = Group(name=name, generation=generation, reader=ReadProgress(positions=dict(kept.positions)))
            group.update(nodes, leader.clock(), removed)
            mine = StoredPositions(generation, dict(group.reader.committed()), leader.world.unique("g"))
            result = yield from self._put(name, mine, etag)
            if not isinstance(result, conditional_puts.PutApplied):
                raise Unavailable(f"group {name} is served by another leader: ask again")
            self.groups[name] = LoadedGroup(group, result.etag)
        it = self.groups[name]
        self._refresh(it, nodes, removed)
        return it

    def _put(self, name: str, value: StoredPositions, etag: str | None) -> Steps:
        leader = self.leader
        return (
            yield from conditional_puts.put_conditionally(
                leader.store, leader.process, path(name), value, etag, lambda it: it.writer == value.writer
            )
        )
