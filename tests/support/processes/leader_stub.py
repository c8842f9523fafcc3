"""A leader stub: a gRPC server that records brokers' reports and returns a configured answer."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc

from smq_core.errors import NotLeader
from smq_proto.error_conversion import error_to_pb
from smq_proto.v1 import admin_pb2, brokers_pb2
from support.leader_services import LeaderServicer


class RecordingLeader(LeaderServicer):
    """``with RecordingLeader() as leader: ...``; ``leader.address`` is where it listens."""

    def __init__(self) -> None:
        self.reports: list[tuple[float, brokers_pb2.BrokerReport]] = []
        self.assigned: list[str] = []
        self.may_leave = self.others_drain = self.drain = False
        self.other: str | None = None
        """Replies as the leader."""
        self.brokers: list[admin_pb2.BrokerList.Broker] = []
        self._lock = threading.Lock()
        self._server = grpc.server(ThreadPoolExecutor(4))
        self.serve_at(self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def Report(self, request: brokers_pb2.BrokerReport, context: grpc.ServicerContext) -> brokers_pb2.BrokerReportReply:
        if self.other is not None:
            error = error_to_pb(NotLeader(f"the leader is {self.other}", leader=self.other))
            context.set_trailing_metadata((("smq-error-bin", error.SerializeToString()),))
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not the leader")
        with self._lock:
            self.reports.append((time.monotonic(), request))
        return brokers_pb2.BrokerReportReply(
            may_leave=self.may_leave, assigned=self.assigned, others_drain=self.others_drain, drain=self.drain
        )

    def ListBrokers(self, request: admin_pb2.ListBrokersRequest, context: grpc.ServicerContext) -> admin_pb2.BrokerList:
        return admin_pb2.BrokerList(brokers=self.brokers)

    @property
    def last(self) -> brokers_pb2.BrokerReport:
        return self.reports[-1][1]

    def __enter__(self) -> RecordingLeader:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None)
