"""A person deletes the topic late in a history; the leaders end it by the operator's own ``endings`` and collectors.

What must hold then; a violation has the number 15:

15. after the deletion was answered nothing that was sent later is acked; all that was acked is in the log, which stays
    with policy Retain; with Delete no file goes before its time, while a living broker could still write, and in the
    end none is left; every living broker that held a segment of it knows its end, and so do the producers
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from smq_core import invariants as inv
from smq_core.errors import SmqError, StoreUnavailable, Unavailable, UnknownTopic
from smq_core.invariants import Row, Violation
from smq_core.model import Replica, Topic
from smq_core.producing import LaneState
from smq_operator.collect_deleted import Living, collect_deleted
from smq_operator.endings import Endings
from smq_operator.lifecycle import retire
from smq_storage import paths
from smq_storage.records import to_json
from smq_storage.topics import Current
from support.sim.chain import LAYOUT, Stored, folder
from support.sim.filer import TOPIC, UID, Filer
from support.sim.leader import SETTLES
from support.sim.leader_calls import SimulatedCalls
from support.sim.messages import rows
from support.sim.virtual_asyncio import VirtualLoop
from support.sim.world import MS, SECOND, Process, Steps

if TYPE_CHECKING:
    from support.sim.elastic import ElasticHistory
    from support.sim.elastic_leader import ElasticLeader

SHARE = 0.12
STAY = 6 * SECOND
COLLECT_EVERY = 2 * SECOND
ANSWERS_WITHIN = 8.0


class Deleting:
    """``drawn``: this history has a deletion, by dice of its own; ``data``: its policy is Delete.

    ``gone``: the topic is wished no more. ``answered``: when a leader said that it is done, in true time. ``emptied``:
    the segments of which files went because of it.
    """

    def __init__(self, seed: int) -> None:
        self._dice = Random(f"deletion {seed}")
        self.drawn = self._dice.random() < SHARE
        self.data = self._dice.random() < 0.5
        self.gone = False
        self.answered: int | None = None
        self.emptied: set[str] = set()
        self.history: ElasticHistory

    def of(self, topic: Topic) -> Topic:
        return replace(topic, spec=replace(topic.spec, delete_data=True)) if self.drawn and self.data else topic

    def begin(self, history: ElasticHistory) -> None:
        self.history = history
        store, world = history.store, history.world
        store.put_at_once(f"doc/{paths.current(TOPIC)}", to_json(Current(UID)))
        store.put_at_once(f"doc/{paths.topic_json(TOPIC, UID)}", to_json(history.topic))
        at, give_up = int(history.horizon * self._dice.uniform(0.7, 0.95)), 3 * SECOND
        amid = self._dice.random() < 0.5
        world.after(at, lambda: self._ask_amid(world.now + give_up) if amid else self._ask())

    def known_to(self, process: Process) -> bool:
        """Whether this leader can see now that the topic is wished no more."""
        return self.gone and self.history.deployment.reached_by(process)

    def unwish(self) -> None:
        if not self.gone:
            self.gone = True
            self.history.world.tell("!", "", f"the topic is deleted, its data {'too' if self.data else 'stays'}")
            if self.data:  # whoever deletes the data reads it no more
                for client in (*self.history.readers, *self.history.members):
                    client.process.kill()

    def _ask_amid(self, latest: int) -> None:
        """When a change of the layout is under way, if one comes soon."""
        world = self.history.world
        leaders: list[Any] = list(self.history.leaders.values())
        if world.now >= latest or any(leader.machine._next is not None for leader in leaders):
            self._ask()
        else:
            world.after(5 * MS, lambda: self._ask_amid(latest))

    def _ask(self) -> None:
        """A person deletes it, and does so again until it is said to be done."""
        history = self.history
        leaders: list[Any] = [x for x in history.leaders.values() if x.process.alive and not x.process.paused]
        again = self._dice.randint(SECOND // 2, 2 * SECOND)
        if not leaders or self.answered is not None:
            history.world.after(again, self._ask) if self.answered is None else None
            return
        leader = self._dice.choice(leaders)
        history.world.tell("!", "", f"asks {leader.process.name} to delete the topic")
        answer = leader.delete()

        def heard(found: Any) -> None:
            done = found.error is None or isinstance(found.error, UnknownTopic)
            if done and self.answered is None:
                self.answered = history.world.now
                history.world.tell("!", "", "the deletion is answered")

        answer.then(heard)
        history.world.after(again + int(ANSWERS_WITHIN * SECOND), self._ask)
        if history.faults.kinds and not history.faults.over:
            self._trouble(leader)

    def _trouble(self, leader: Any) -> None:
        """What is hard on a deletion comes just then: a leader that ends, brokers that are told to end or die."""
        faults, dice = self.history.faults, self._dice
        soon = dice.randint(0, SECOND // 3)
        if dice.random() < 0.4:
            faults.soon(soon, lambda: faults.end_leader(leader))
        if dice.random() < 0.3:
            faults.soon(soon // 4, faults.filer_away)
        if dice.random() < 0.4:
            faults.soon(dice.randint(0, SECOND), faults.terminate_broker)
        if dice.random() < 0.3:
            faults.soon(dice.randint(0, SECOND), faults.kill_broker)

    # ---- what must hold, as it happens

    def file_deleted(self, path: str) -> None:
        if not self.data or not self.gone:
            self._broken(path, "it is deleted though its topic lives, or the policy is Retain")
        for broker in self.history.brokers.values():
            open_ = [name for name, held in broker.holdings.items() if held.machine.outcome is None]
            if open_ and broker.process.alive and broker.begun() & set(open_):
                self._broken(path, f"it is deleted while {broker.incarnation} holds {open_}")
        if path.startswith("seg/"):
            self.emptied.add(path.split("/")[1])

    def acked(self, messages: Iterable[inv.Message]) -> None:
        late = [m for m in messages if self.answered is not None and m.sent_at > self.answered]
        if late:
            self._broken(late[0].producer, f"{late[0]} was sent after the deletion was answered, and is acked")

    # ---- the end

    def waiting(self) -> dict[str, str]:
        """What has still to come to its end."""
        history = self.history
        waiting = {} if self.answered is not None else {"deletion": "nobody has answered it"}
        for broker in history.brokers.values():
            for name, held in broker.holdings.items():
                if held.machine.outcome is None:
                    waiting[name] = f"{broker.incarnation} does not know that it has ended"
        for producer in history.producers:
            lanes = [name for name, lane in producer.lanes.lanes.items() if lane.state is LaneState.STREAMING]
            if lanes and producer.process.alive and not producer.stopped:
                waiting[producer.name] = f"it still writes to {lanes}"
        if self.data:
            waiting |= dict.fromkeys(self._files(), "it is still there")
        return waiting

    def check(self) -> None:
        history, checker = self.history, self.history.checker
        log = [row for name in checker.everyone for row in self._log(name)]
        checker.must(inv.acked_is_kept(checker.acked_rows, log, checker.lost))
        checker.must(inv.each_once(log, []))
        if not self.data:
            for name in checker.everyone.keys() - checker.retained.rows.keys():
                objects = {stored.info.first: stored.info for stored in self.stored(name)}
                checker.must(inv.chain_is_whole(name, objects, sealed=True))
        for reader in history.readers:
            checker.must(inv.delivered_is_stable(reader.rows, log, checker.lost))

    def _files(self) -> list[str]:
        store = self.history.store
        folders = ("seg/", LAYOUT, "index", "group/", f"doc/{paths.topic_folder(TOPIC, UID)}/")
        return [path for prefix in folders for path in store.paths(prefix)]

    def stored(self, name: str) -> list[Stored]:
        """Every chunk that the segment has, or had."""
        things, before = self.history.store.things, folder(name)
        found = [things[path].versions for path in sorted(things) if path.startswith(before)]
        return [next(value for _, value, _ in versions if value is not None) for versions in found]

    def _log(self, name: str) -> list[Row]:
        kept = self.history.checker.retained.rows.get(name)
        if kept is not None:
            return kept
        each = (pair for stored in self.stored(name) for pair in rows(stored.entries))
        return [Row(name, offset, message) for offset, message in each]

    def _broken(self, subject: str, what: str) -> None:
        self.history.checker.must([Violation(15, subject, what)])


class Ender:
    """For one leader: what ``Endings`` and the collector of deleted topics need of it."""

    def __init__(self, leader: ElasticLeader) -> None:
        self.leader = leader
        self.process, self.network = leader.process, leader.network
        self.knows = False
        self._settles_at = leader.clock() + SETTLES
        self.loop = VirtualLoop(leader.process)
        self.store: Any = Filer(leader.store, leader.process)
        self.me = leader.process.name
        self._patience = self.store.patience(5.0)
        self.on_removed: list[Any] = []
        # To Endings this is the leader's loop, its effects, its registry and its world.
        self.effects = self.registry = self.world = self
        self.endings = Endings(self, SimulatedCalls(self), self._patience)  # type: ignore[arg-type]

    def start(self) -> None:
        self.loop.create_task(self.endings.keep())
        self.process.start(self._collect())

    def sees(self) -> bool:
        """Looks whether the topic is wished; what the leader begins with it is ended when it is not."""
        if not self.knows and self.leader.history.deleting.known_to(self.process):
            self.knows = True
            self.leader.world.tell(self.process.name, "", "sees that the topic is deleted")
            self.endings.begin(TOPIC, UID)
        return self.knows

    async def delete(self) -> None:
        """As the service answers it."""
        going_on = self.endings.of(TOPIC)
        if going_on is not None and not self.topics:
            return await self.endings.wait(going_on, ANSWERS_WITHIN)
        if not self.topics and not self.endings.looked:
            raise Unavailable("this leader does not know its deleted topics yet")
        if not self.topics:
            raise UnknownTopic("there is no such topic")
        await self.in_pool(retire, self.store, TOPIC, UID, self._patience, self.now())
        if not self.leader.history.deployment.reached_by(self.process):
            raise Unavailable("the API does not answer")
        self.leader.history.deleting.unwish()
        self.sees()
        self.endings.begin(TOPIC, UID)
        await self.endings.wait(UID, ANSWERS_WITHIN)

    def _collect(self) -> Steps:
        kept: set[str] = set()
        while True:
            yield COLLECT_EVERY
            if self.knows:
                held = {UID} if any(it.held and self._alive(it.replica) for it in self.leader.heard.values()) else set()
                living = Living(set(), set(), held, sure=True)
                call = self.in_pool(collect_deleted, self.store, living, STAY, self.now(), self._patience, kept)
                try:
                    yield self.loop.start(call)
                except StoreUnavailable as error:
                    self.leader.world.tell(self.process.name, "", f"collecting is put off: {error.message}")
                except SmqError as error:
                    self.leader.world.tell(self.process.name, "", f"collecting failed: {error.message}")

    def _alive(self, replica: Replica) -> bool:
        return self.proof_of_death(replica.incarnation) is None

    # ---- as the leader's loop

    @property
    def topics(self) -> dict[str, Any]:
        if self.knows:
            return {}
        topic = self.leader.history.topic
        return {TOPIC: SimpleNamespace(wish=SimpleNamespace(uid=UID), topic=topic)}

    @property
    def settled(self) -> bool:
        return self.now() >= self._settles_at

    def now(self) -> int:
        return self.leader.clock()

    def spawn(self, work: Coroutine[Any, Any, None]) -> Any:
        return self.loop.create_task(work)

    async def in_pool(self, call: Callable[..., Any], *args: Any) -> Any:
        return await self.loop.run_in_executor(None, call, *args)

    # ---- as the registry and the world

    def get(self, incarnation: str) -> Any:
        heard = self.leader.heard.get(incarnation)
        if heard is None:
            return None
        return SimpleNamespace(liveness=lambda now: self.leader._liveness(incarnation, heard))

    def outlived(self, replica: Replica, now: int) -> bool:
        """As this leader: it believes in proofs alone."""
        return False

    def proof_of_death(self, incarnation: str) -> str | None:
        dead = self.leader.supervisor.proves_gone(self.leader.address, incarnation)
        return "its process was reaped" if dead else None
