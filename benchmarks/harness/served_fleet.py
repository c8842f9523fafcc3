"""The tests' in-memory brokers, each behind a real port, so that a real leader commands them and gets their reports."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import grpc
import pyarrow.flight as fl

from smq_core.errors import SmqError
from smq_core.model.entities import Replica
from smq_proto.flight import parse, to_flight
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1.brokers_pb2_grpc import BrokersStub
from smq_proto.wire import outcome_to_pb, segment_from_pb, topic_from_pb
from smq_storage.object_store.store import Store
from support.in_memory.brokers import FakeBroker

# Real brokers report each second; these share one interpreter, and should not be taken for silent.
REPORT_EVERY = 0.5


class ServedBroker(fl.FlightServerBase):
    """Takes the leader's commands. It has no streams, because no producer writes to it."""

    def __init__(self, name: str, store: Store) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._lock, self._sealing = threading.Lock(), threading.Lock()
        self._broker = FakeBroker(Replica(name, f"{name}-1", f"127.0.0.1:{self.port}"), store)

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        try:
            return [self._run(action.type, action.body)]
        except SmqError as error:
            raise to_flight(error) from error

    def _run(self, action: str, body: Any) -> bytes:
        if action == "open":
            request = parse(pb.OpenSegment, body)
            with self._lock:
                self._broker.open(topic_from_pb(request.topic), segment_from_pb(request.segment))
            return pb.OpenedSegment().SerializeToString()
        if action == "seal":
            sealing = parse(pb.SealSegment, body)
            if sealing.only_flush:
                return b""
            with self._sealing:  # it waits for the store, and must not block other calls
                return outcome_to_pb(self._broker.seal(sealing)).SerializeToString()
        with self._lock:
            return self._broker.status().SerializeToString()

    def report_to(self, leader: BrokersStub) -> None:
        """There may be no receiver."""
        with self._lock:
            report = self._broker.report()
        with contextlib.suppress(grpc.RpcError):
            leader.Report(report, timeout=5.0)


class ServedFleet:
    """``count`` brokers that report to ``leader``, from ``with`` to its end."""

    def __init__(self, store: Store, count: int, leader: str) -> None:
        self._brokers: Sequence[ServedBroker] = [ServedBroker(f"b{number}", store) for number in range(count)]
        self._channel = grpc.insecure_channel(leader, [("grpc.max_reconnect_backoff_ms", 500)])
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._report, args=(broker,)) for broker in self._brokers]

    def _report(self, broker: ServedBroker) -> None:
        leader = BrokersStub(self._channel)
        while not self._stop.wait(REPORT_EVERY):
            broker.report_to(leader)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._channel.close()
        for broker in self._brokers:
            broker.shutdown()
