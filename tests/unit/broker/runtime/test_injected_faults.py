"""Each thread start, read from the filer and callback of two brokers fails once: the n-th one, for every n.

Afterwards the brokers work, or the segment is fenced so that the leader seals it, or the process says that it ends.
Nothing that was acked is lost, and credits are given back.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

import pytest
import structlog

from smq_broker.replication import replica_session as session
from smq_broker.runtime.threads import spawn_daemon
from smq_broker.segments import flusher, seal_watcher
from smq_core.errors import SmqError, StoreUnavailable
from smq_core.model.entities import Segment
from smq_core.replica.segment_replica import ReplicaState
from smq_storage.object_store.store import open_store
from support.data.raw_flight import rows
from support.fault_injection.nth_failure import NthFailure, UnreadableStore
from support.in_memory.broker_parts import BrokerParts, ProducerClient, Wrap, unchanged
from support.processes.broker import make_segment, make_topic
from support.waiting import eventually

BATCHES = 3
MAX_CALLS = 60
# Of threads. The longer name comes first.
KINDS = (
    "flush-poll",
    "flush",
    "seal-check",
    "seal-watcher",
    "seal",
    "replication",
    "bulk-lane",
    "replies",
    "open",
    "producer-replies",
)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flusher, "POLL_SECONDS", 0.005)
    monkeypatch.setattr(flusher, "RETRY_AFTER_US", 5_000)
    monkeypatch.setattr(flusher, "RETRY_AFTER_FAILURE_US", 5_000)
    monkeypatch.setattr(seal_watcher, "CHECK_SECONDS", 0.005)


@pytest.fixture(autouse=True)
def no_logs() -> Iterator[None]:
    """Tracebacks on a terminal take most of the time."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


class ProcessEnds(Exception):
    """A broker said that it ends, which is an outcome too."""


class TwoBrokers:
    """What a leader and a producer do with a segment and its successor, repeated until it succeeds, as they would."""

    def __init__(self, store: object, spawn: Callable[..., threading.Thread], wrap: Wrap) -> None:
        network: dict[str, BrokerParts] = {}
        self.brokers = [BrokerParts(name, store, network, spawn=spawn, wrap=wrap) for name in ("b1", "b2")]
        self.topic = make_topic(flush_bytes=1)
        one, two = self.brokers
        self.first = make_segment(self.topic, one.replica, two.replica)
        self.second = make_segment(self.topic, two.replica, one.replica, number=1, predecessors=[self.first])

    def repeat(self, action: Callable[[], object]) -> None:
        def succeeded() -> bool:
            self.check_processes()
            try:
                action()
            except (SmqError, RuntimeError):
                return False
            return True

        try:
            eventually(succeeded)
        except AssertionError:
            self.check_processes()
            raise

    def check_processes(self) -> None:
        for broker in self.brokers:
            if broker.threads.process_failure:
                raise ProcessEnds(broker.threads.process_failure)

    def start(self) -> None:
        for broker in self.brokers:
            # A process that cannot start these threads ends.
            try:
                broker.flusher.start()
                broker.watcher.start()
            except SmqError as error:
                raise ProcessEnds(error.message) from error

    def open(self, segment: Segment) -> None:
        for broker in self.brokers:
            self.repeat(lambda it=broker: it.opener.open(self.topic, segment))  # type: ignore[misc]

    def produce(self, segment: Segment) -> int:
        """Sends the batches, over new streams if need be, until all are acked. Returns the number of acked ones.

        It gives up if the segment is fenced, because a leader would seal it then.
        """
        (primary,) = (broker for broker in self.brokers if broker.replica == segment.primary)
        hosted = primary.hosted(self.topic, segment)
        acked: set[int] = set()

        def is_given_up() -> bool:
            return hosted.machine.state in (ReplicaState.FENCED, ReplicaState.SEALED)

        def send() -> None:
            if is_given_up():
                return
            producer = primary.produce(self.topic, segment)
            try:
                self._send_all(producer)
                eventually(lambda: producer.ended or len(producer.acked) == BATCHES or is_given_up())
            finally:
                acked.update(producer.acked)
                producer.close()
            if len(acked) < BATCHES and not is_given_up():
                raise RuntimeError("the stream ended early")

        self.repeat(send)
        return len(acked)

    def wait_stored(self, segment: Segment) -> None:
        """Waits until the primary has written all messages, unless it is fenced."""
        (primary,) = (broker for broker in self.brokers if broker.replica == segment.primary)
        machine = primary.hosted(self.topic, segment).machine

        def is_stored() -> None:
            if machine.state is ReplicaState.OPEN and machine.chain_end < machine.end:
                raise RuntimeError("the primary has not written all messages yet")

        self.repeat(is_stored)

    def _send_all(self, producer: ProducerClient) -> None:
        try:
            for sequence in range(BATCHES):
                producer.send(sequence, rows([b"v"]))
        except OSError as error:
            raise RuntimeError from error

    def seal(self, segment: Segment, sealer: BrokerParts) -> int:
        """Seals the segment at one broker. The other one finds out. Returns the segment's end."""
        ends: list[int] = []
        self.repeat(lambda: ends.append(sealer.seal(self.topic, segment).end))

        def known_everywhere() -> bool:
            found = [broker.hosted(self.topic, segment).machine.outcome for broker in self.brokers]
            if any(outcome is None for outcome in found):
                raise RuntimeError("not sealed everywhere")
            return {outcome.end for outcome in found if outcome is not None} == set(ends)

        self.repeat(known_everywhere)
        return ends[0]


def run_history(
    store: object,
    spawn: Callable[..., threading.Thread] = spawn_daemon,
    wrap: Wrap = unchanged,
) -> bool:
    """True if the brokers work at the end, False if a process said that it ends."""
    two = TwoBrokers(store, spawn, wrap)
    try:
        two.start()
        two.open(two.first)
        acked = two.produce(two.first)
        two.open(two.second)
        assert two.seal(two.first, two.brokers[0]) >= acked
        acked = two.produce(two.second)
        # Now the follower seals. The primary learns it from its replication, as none of its chunks meets the seal.
        two.wait_stored(two.second)
        assert two.seal(two.second, two.brokers[0]) >= acked
    except ProcessEnds:
        return False
    finally:
        for broker in two.brokers:
            broker.stop()
    for broker in two.brokers:
        assert broker.memory.primary_usage()[0] == 0
        assert broker.memory.usage()["replication"][0] == 0
        assert {hosted.machine.state for hosted in broker.registry.all()} == {ReplicaState.SEALED}
        assert not any(hosted.streams for hosted in broker.registry.all())
    return True


def run_with_every_failure(name: str, history: Callable[[NthFailure], bool], error: Callable[[], Exception]) -> None:
    """Runs the history with the n-th failure for every n.

    A slow machine makes more calls, because the brokers poll the filer. The limit is far above what a fast one makes.
    """
    for n in range(1, MAX_CALLS):
        failure = NthFailure(name, n, error)
        works = history(failure)
        if not failure.failed:
            assert works, "nothing failed"
            assert n > 1, f"the history never calls {name}"
            return


def test_the_history_works_without_failures() -> None:
    assert run_history(open_store("memory://"))


@pytest.mark.parametrize("kind", KINDS)
def test_every_thread_that_cannot_start(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "bulk-lane":
        monkeypatch.setattr(session, "BULK_BYTES", 0)  # every batch goes on a bulk lane

    def history(failure: NthFailure) -> bool:
        def spawn(run: Callable[[], None], name: str) -> threading.Thread:
            failure.count(next(known for known in KINDS if name.startswith(known)))
            return spawn_daemon(run, name)

        return run_history(open_store("memory://"), spawn)

    run_with_every_failure(kind, history, lambda: RuntimeError("can't start new thread"))


@pytest.mark.parametrize("call", ["get", "get_tail", "list"])
@pytest.mark.parametrize(
    "error", [lambda: StoreUnavailable("the filer is away"), lambda: ValueError("damaged")], ids=["away", "unexpected"]
)
def test_every_read_that_fails(call: str, error: Callable[[], Exception]) -> None:
    run_with_every_failure(call, lambda it: run_history(UnreadableStore(open_store("memory://"), it)), error)


@pytest.mark.parametrize("callback", ["on_change", "on_fenced", "on_seal_found"])
def test_every_callback_that_fails(callback: str) -> None:
    def history(failure: NthFailure) -> bool:
        return run_history(open_store("memory://"), wrap=failure.wrap)

    run_with_every_failure(callback, history, lambda: ValueError("unexpected"))
