"""The leader's side of a consumer group: ``groups.Group`` with its positions and generation kept in the store.

One request after another. What a request changes is put (etag compare-and-swap) before anybody hears of it; who loses
that race, or does not know, forgets the group and loads it again.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from smq_core.dag import Reader, nodes_of
from smq_core.errors import SmqError, StoreUnavailable, Unavailable
from smq_core.groups import Group
from support.sim import conditional
from support.sim.chain import INDEX
from support.sim.world import Future, Steps

if TYPE_CHECKING:
    from support.sim.leader import Leader


class Committed(NamedTuple):
    """What the store keeps of a group."""

    generation: int
    positions: dict[str, int]
    writer: str


def path(group: str) -> str:
    return f"group/{group}"


class GroupHost:
    def __init__(self, leader: Leader, names: list[str]) -> None:
        self.leader = leader
        self.groups: dict[str, tuple[Group, Committed, str | None]] = {}
        self._requests: deque[tuple[tuple[Any, ...], Future]] = deque()
        self._busy = False

    def ask(self, request: tuple[Any, ...]) -> Future:
        answer = Future()
        self._requests.append((request, answer))
        if not self._busy:
            self._busy = True
            self.leader.process.start(self._serve())
        return answer

    def _serve(self) -> Steps:
        while self._requests:
            request, answer = self._requests.popleft()
            try:
                answer.set((yield from self._one(*request)))
            except SmqError as error:
                answer.fail(error)
        self._busy = False

    def _one(self, what: str, name: str, member: str, generation: int = 0, positions: Any = None) -> Steps:
        leader = self.leader
        group = yield from self._load(name)
        group.expire(leader.clock())
        failure: SmqError | None = None
        if what == "join":
            group.join(member, leader.clock())
        else:
            try:
                group.commit(member, generation, positions)
            except SmqError as error:
                failure = error
        layout = leader.machine.layout
        if layout is not None:
            page = yield leader.store.get(leader.process, INDEX)
            group.update(nodes_of(page[0][1] if page is not None else (), layout))
        yield from self._keep(name)
        kept = self.groups[name][1]
        leader.checker.assigned(name, group, kept.positions)
        if failure is not None:
            raise failure
        return (group.generation, group.of(member), dict(group.reader.nodes))

    def _load(self, name: str) -> Steps:
        if name not in self.groups:
            found = yield self.leader.store.get(self.leader.process, path(name))
            kept, etag = found if found is not None else (Committed(0, {}, ""), None)
            group = Group(name, kept.generation, Reader(positions=dict(kept.positions)))
            self.groups[name] = group, kept, etag
        return self.groups[name][0]

    def _keep(self, name: str) -> Steps:
        """Puts what has changed. The group is forgotten when that fails: somebody else may serve it."""
        group, kept, etag = self.groups[name]
        now = Committed(group.generation, dict(group.reader.committed()), self.leader.world.unique("g"))
        if (now.generation, now.positions) == (kept.generation, kept.positions):
            return
        del self.groups[name]
        put = conditional.settle(
            self.leader.store, self.leader.process, path(name), now, etag, lambda it: it.writer == now.writer
        )
        try:
            result = yield from put
        except StoreUnavailable:
            raise
        if not isinstance(result, conditional.Written):
            raise Unavailable(f"group {name} is served by another leader now: ask again")
        self.groups[name] = group, now, result.etag
