"""The leader's side of a consumer group: ``groups.Group`` with its positions kept in the store.

A group is loaded when somebody asks for it, and put at once under a new thousand of generations: from then on an
earlier leader loses the compare-and-swap at its next commit, and forgets the group. One request after another.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from smq_core.dag import Reader, index_is_behind, nodes_of
from smq_core.errors import SmqError, StaleGeneration, StoreUnavailable, Unavailable
from smq_core.groups import Group
from smq_core.numbers import Numbers
from smq_storage.index import IndexPage
from support.sim import conditional
from support.sim.chain import INDEX
from support.sim.world import Future, Steps

if TYPE_CHECKING:
    from support.sim.leader import Leader

GENERATIONS_PER_LEADER = 1000


class Committed(NamedTuple):
    """What the store keeps of a group."""

    generation: int
    positions: dict[str, int]
    writer: str


@dataclass(slots=True)
class Loaded:
    group: Group
    etag: str
    written: set[str] = field(default_factory=set)
    """Writers of PUTs whose outcome is not known: one of them in the store is this leader's own."""


def path(group: str) -> str:
    return f"group/{group}"


class GroupHost:
    def __init__(self, leader: Leader) -> None:
        self.leader = leader
        self.groups: dict[str, Loaded] = {}
        self._requests: deque[tuple[tuple[Any, ...], Future]] = deque()
        self._busy = False

    def ask(self, request: tuple[Any, ...]) -> Future:
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
        """To a group that is loaded: a join does not wait for a commit that is being written."""
        nodes, removed = yield from self._nodes()
        it = self.groups.get(name)
        if it is None:
            raise Unavailable(f"group {name} is served by another leader now: ask again")
        self._refresh(it, nodes, removed)
        if it.group.pending and not it.group.in_flight and not self._busy:
            self.ask(("write", name))  # what could not be written is written later, whether or not somebody waits
        return self._join(name, it, member, generation)

    def _join(self, name: str, it: Loaded, member: str, generation: int) -> Any:
        if it.group.outdated_by(generation):
            self.groups.pop(name, None)
            raise Unavailable(f"group {name} was served by another leader since: ask again")
        assignment = it.group.join(member, self.leader.clock(), generation)
        self.leader.checker.assigned(name, it.group)
        return assignment, dict(it.group.reader.nodes)

    def _commit(self, name: str, it: Loaded, member: str, generation: int, positions: dict[str, int]) -> Steps:
        if it.group.commit(member, generation, positions):
            yield from self._write(name, it)

    def _write(self, name: str, it: Loaded) -> Steps:
        now = Committed(it.group.generation, dict(it.group.flushing()), self.leader.world.unique("g"))
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
        if not isinstance(result, conditional.Written):
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
        if index_is_behind(layout, index.entries, index.removed):
            raise Unavailable("the store shows an old index: ask again")
        return nodes_of(index.entries, layout), index.removed

    def _refresh(self, it: Loaded, nodes: Any, removed: Numbers) -> None:
        it.group.expire(self.leader.clock())
        it.group.update(nodes, self.leader.clock(), removed)

    def _loaded(self, name: str) -> Steps:
        leader = self.leader
        nodes, removed = yield from self._nodes()
        if name not in self.groups:
            found = yield leader.store.get(leader.process, path(name))
            kept, etag = found if found is not None else (Committed(0, {}, ""), None)
            generation = (kept.generation // GENERATIONS_PER_LEADER + 1) * GENERATIONS_PER_LEADER
            group = Group(name, generation, Reader(positions=dict(kept.positions)))
            group.update(nodes, leader.clock(), removed)
            mine = Committed(generation, dict(group.reader.committed()), leader.world.unique("g"))
            result = yield from self._put(name, mine, etag)
            if not isinstance(result, conditional.Written):
                raise Unavailable(f"group {name} is served by another leader: ask again")
            self.groups[name] = Loaded(group, result.etag)
        it = self.groups[name]
        self._refresh(it, nodes, removed)
        return it

    def _put(self, name: str, value: Committed, etag: str | None) -> Steps:
        leader = self.leader
        return (
            yield from conditional.settle(
                leader.store, leader.process, path(name), value, etag, lambda it: it.writer == value.writer
            )
        )
