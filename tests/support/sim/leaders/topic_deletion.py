"""An administrator deletes the topic late in a history.

The leaders delete it with the operator's own ``topic_deletions`` and garbage collectors. A violation of these rules has
the number 15:

15. No message that is sent after the deletion was answered is acked. All acked messages are in the log. The log stays
    with the policy Retain. With Delete no file is deleted too early, while a running broker could still write; in the
    end none is left. Every running broker that hosted one of its segments has the outcome, and so have the producers.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from smq_core import invariants as inv
from smq_core.errors import SmqError, StoreUnavailable, Unavailable, UnknownTopic
from smq_core.invariants import Row, Violation
from smq_core.model.entities import Replica, Topic
from smq_core.producing.send_queue import SendQueueState
from smq_operator.brokers.sealing import SealExecutor
from smq_operator.cleanup.deleted_topics import LiveTopics, collect_deleted_topics
from smq_operator.cleanup.document_scan import DocumentScan
from smq_operator.cleanup.filer_clock import ClockReading
from smq_operator.cleanup.topic_deletion import TopicDeletionManager
from smq_operator.platform_port import TerminationProof
from smq_operator.reconcile.topics.adoption import retire
from smq_operator.reconcile.topics.topic_events import TopicEvents
from smq_operator.runtime.problems import LeaderProblems
from smq_operator.runtime.store_pool import StorePool
from smq_storage.catalog import paths
from smq_storage.catalog.filer_time import read_filer_time
from smq_storage.catalog.topics import CurrentTopic
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.json_codec import to_json
from support.sim.clients.messages import rows
from support.sim.engine.virtual_asyncio import VirtualLoop
from support.sim.engine.world import MS, SECOND, Process, Steps
from support.sim.filer.blocking_store import TOPIC, UID, BlockingStore
from support.sim.filer.chunk_chain import LAYOUT, StoredChunk, folder
from support.sim.leaders.broker_calls import SimulatedCalls
from support.sim.leaders.protocol_leader import WARM_UP

if TYPE_CHECKING:
    from support.sim.histories.elastic import ElasticHistory
    from support.sim.leaders.elastic_leader import ElasticLeader

RETENTION_TIME = 6 * SECOND
COLLECT_EVERY = 2 * SECOND
ANSWERS_WITHIN = 8.0


class TopicDeletionScenario:
    """``drawn`` is true if this history has a deletion, drawn from a separate random generator.

    ``data`` is true if the policy is Delete, and ``gone`` once the topic's manifest is deleted. ``answered`` is the
    true time at which a leader answered that the deletion is done. ``emptied`` has the segments whose files were
    deleted because of it.
    """

    def __init__(self, seed: int, share: float) -> None:
        self._dice = Random(f"deletion {seed}")
        self.drawn = self._dice.random() < share
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
        store.put_at_once(f"doc/{paths.current(TOPIC)}", to_json(CurrentTopic(UID)))
        store.put_at_once(f"doc/{paths.topic_json(TOPIC, UID)}", to_json(history.topic))
        at, give_up = int(history.horizon * self._dice.uniform(0.7, 0.95)), 3 * SECOND
        amid = self._dice.random() < 0.7
        world.after(at, lambda: self._request_amid_change(world.now + give_up) if amid else self._request_deletion())

    def known_to(self, process: Process) -> bool:
        """Whether this leader can see now that the topic is deleted."""
        return self.gone and self.history.deployment.reached_by(process)

    def delete_manifest(self) -> None:
        if not self.gone:
            self.gone = True
            self.history.world.note("!", "", f"the topic is deleted, its data {'too' if self.data else 'stays'}")
            if self.data:  # an administrator who deletes the data has stopped its readers
                for client in (*self.history.readers, *self.history.members):
                    client.process.kill()

    def _request_amid_change(self, latest: int) -> None:
        """Requests the deletion during a PUT of the layout, if there is one before ``latest``."""
        world = self.history.world
        leaders: list[Any] = list(self.history.leaders.values())
        if world.now >= latest or any(leader.machine.layout_in_flight is not None for leader in leaders):
            self._request_deletion()
        else:
            world.after(5 * MS, lambda: self._request_amid_change(latest))

    def _request_deletion(self) -> None:
        """Deletes the topic as an administrator would, and repeats that until a leader answers that it is done."""
        history = self.history
        leaders: list[Any] = [x for x in history.leaders.values() if x.process.alive and not x.process.paused]
        again = self._dice.randint(SECOND // 2, 2 * SECOND)
        if not leaders or self.answered is not None:
            history.world.after(again, self._request_deletion) if self.answered is None else None
            return
        leader = self._dice.choice(leaders)
        history.world.note("!", "", f"asks {leader.process.name} to delete the topic")
        answer = leader.delete()

        def on_answer(found: Any) -> None:
            done = found.error is None or isinstance(found.error, UnknownTopic)
            if done and self.answered is None:
                self.answered = history.world.now
                history.world.note("!", "", "the deletion is answered")

        answer.then(on_answer)
        history.world.after(again + int(ANSWERS_WITHIN * SECOND), self._request_deletion)
        if history.faults.kinds and not history.faults.over:
            self._inject_faults(leader)

    def _inject_faults(self, leader: Any) -> None:
        """Injects the faults that are hardest on a deletion right then: in the leader, the filer and the brokers."""
        faults, dice = self.history.faults, self._dice
        soon = dice.randint(0, SECOND // 3)
        if dice.random() < 0.4:
            faults.soon(soon, lambda: faults.end_leader(leader))
        if dice.random() < 0.5:
            faults.soon(soon // 4, faults.filer_away)
        if dice.random() < 0.6:
            faults.soon(dice.randint(0, SECOND), faults.terminate_broker)
        if dice.random() < 0.3:
            faults.soon(dice.randint(0, SECOND), faults.kill_broker)

    # ---- checks during the history

    def file_deleted(self, path: str) -> None:
        if not self.data or not self.gone:
            self._broken(path, "it is deleted though its topic lives, or the policy is Retain")
        for broker in self.history.brokers.values():
            open_ = [name for name, held in broker.hosted_segments.items() if held.machine.outcome is None]
            if open_ and broker.process.alive and broker.begun() & set(open_):
                self._broken(path, f"it is deleted while {broker.incarnation} holds {open_}")
        if path.startswith("seg/"):
            self.emptied.add(path.split("/")[1])

    def acked(self, messages: Iterable[inv.Message]) -> None:
        late = [m for m in messages if self.answered is not None and m.sent_at > self.answered]
        if late:
            self._broken(late[0].producer, f"{late[0]} was sent after the deletion was answered, and is acked")

    # ---- checks at the end

    def waiting(self) -> dict[str, str]:
        """A description of each subject that has not finished yet."""
        history = self.history
        waiting = {} if self.answered is not None else {"deletion": "nobody has answered it"}
        for broker in history.brokers.values():
            for name, held in broker.hosted_segments.items():
                if held.machine.outcome is None:
                    waiting[name] = f"{broker.incarnation} does not know that it has ended"
        for producer in history.producers:
            send_queues = [
                name
                for name, send_queue in producer.send_queues.items()
                if send_queue.state is SendQueueState.STREAMING
            ]
            if send_queues and producer.process.alive and not producer.stopped:
                waiting[producer.name] = f"it still writes to {send_queues}"
        if self.data:
            waiting |= dict.fromkeys(self._files(), "it is still there")
        return waiting

    def check(self) -> None:
        history, checker = self.history, self.history.checker
        log = [row for name in checker.everyone for row in self._log(name)]
        checker.must(inv.acked_is_kept(checker.acked_rows, log, checker.losses.reported))
        checker.must(inv.each_once(log, []))
        if not self.data:
            for name in checker.everyone.keys() - checker.retained.rows.keys():
                objects = {stored.info.first: stored.info for stored in self.stored(name)}
                checker.must(inv.chain_is_whole(name, objects, sealed=True))
        for reader in history.readers:
            checker.must(inv.delivered_is_stable(reader.rows, log, checker.losses.lost))

    def _files(self) -> list[str]:
        store = self.history.store
        folders = ("seg/", LAYOUT, "index", "group/", f"doc/{paths.topic_folder(TOPIC, UID)}/")
        return [path for prefix in folders for path in store.paths(prefix)]

    def stored(self, name: str) -> list[StoredChunk]:
        """All chunks of the segment, including deleted ones."""
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


class SimulatedTopicDeletion:
    """One leader's side: the collaborators of ``TopicDeletionManager`` and of the collector of deleted topics."""

    def __init__(self, leader: ElasticLeader) -> None:
        self.leader = leader
        self.process, self.network = leader.process, leader.network
        self.knows = False
        self.problems = LeaderProblems()
        self._warmup_ends_at = leader.clock() + WARM_UP
        self.loop = VirtualLoop(leader.process)
        self.store: Any = BlockingStore(leader.store, leader.process)
        self._retry_policy = RetryPolicy(5.0)
        self._pool = StorePool(self.store, None, self._retry_policy)
        sealing = SealExecutor(
            store=self._pool,
            brokers=SimulatedCalls(self),
            receiver=lambda replica: replica,
            writer_id=leader.process.name,
        )
        # For the manager, this object is the topic directory, registry, platform, task runner and warm-up in one.
        it: Any = self
        self.topic_deletions = TopicDeletionManager(
            topics=it,
            events=TopicEvents(),
            registry=it,
            platform=it,
            store=self._pool,
            sealing=sealing,
            tasks=it,
            warm_up=it,
            clock=self.now,
        )

    def start(self) -> None:
        self.loop.create_task(self.topic_deletions.run())
        self.process.start(self._collect())

    def sees(self) -> bool:
        """Checks whether the topic is deleted. If so, starts its deletion."""
        if not self.knows and self.leader.history.deleting.known_to(self.process):
            self.knows = True
            self.leader.world.note(self.process.name, "", "sees that the topic is deleted")
            self.topic_deletions.start(TOPIC, UID)
        return self.knows

    async def delete(self) -> None:
        """Deletes the topic as the gRPC service does."""
        going_on = self.topic_deletions.uid_of(TOPIC)
        if going_on is not None and self.knows:
            return await self.topic_deletions.wait_until_sealed(going_on, ANSWERS_WITHIN)
        if self.knows and not self.topic_deletions.has_synced:
            raise Unavailable("this leader does not know its deleted topics yet")
        if self.knows:
            raise UnknownTopic("there is no such topic")
        await self._pool.run(retire, TOPIC, UID, self._retry_policy, self.now())
        if not self.leader.history.deployment.reached_by(self.process):
            raise Unavailable("the API does not answer")
        self.leader.history.deleting.delete_manifest()
        self.sees()
        self.topic_deletions.start(TOPIC, UID)
        await self.topic_deletions.wait_until_sealed(UID, ANSWERS_WITHIN)

    def _collect(self) -> Steps:
        kept: set[str] = set()
        while True:
            yield COLLECT_EVERY
            if self.knows:
                held = (
                    {UID}
                    if any(it.held and self._alive(it.replica) for it in self.leader.last_reports.values())
                    else set()
                )
                living = LiveTopics(set(), set(), held, complete=True)
                try:
                    filer = yield self.loop.start(self._pool.run(read_filer_time))
                    clocks, scan = ClockReading(leader=self.now(), filer=filer), DocumentScan()
                    yield self.loop.start(
                        self._pool.run(
                            collect_deleted_topics,
                            living,
                            RETENTION_TIME,
                            clocks,
                            self._retry_policy,
                            kept,
                            scan,
                        )
                    )
                except StoreUnavailable as error:
                    self.leader.world.note(self.process.name, "", f"collecting is put off: {error.message}")
                except SmqError as error:
                    self.leader.world.note(self.process.name, "", f"collecting failed: {error.message}")

    def _alive(self, replica: Replica) -> bool:
        return self.termination_proof(replica.incarnation) is None

    # ---- topic directory, warm-up and task runner

    def values(self) -> list[Any]:
        if self.knows:
            return []
        topic = self.leader.history.topic
        return [SimpleNamespace(desired=SimpleNamespace(uid=UID), topic=topic)]

    @property
    def over(self) -> bool:
        return self.now() >= self._warmup_ends_at

    def now(self) -> int:
        return self.leader.clock()

    def spawn(self, work: Coroutine[Any, Any, None]) -> Any:
        return self.loop.create_task(work)

    # ---- registry and platform

    def get(self, incarnation: str) -> Any:
        last_report = self.leader.last_reports.get(incarnation)
        if last_report is None:
            return None
        return SimpleNamespace(liveness=lambda now: self.leader._liveness(last_report.replica, last_report))

    def superseded(self, replica: Replica, now: int) -> bool:
        """False, because this leader relies on termination proofs alone."""
        return False

    def termination_proof(self, incarnation: str, reporting: bool = False) -> TerminationProof | None:
        dead = self.leader.supervisor.proves_gone(self.leader.address, incarnation)
        return TerminationProof("its process was reaped") if dead else None
