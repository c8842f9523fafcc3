"""The broker's session with the leader: a report each second, and at once after a change.

A missing leader is a normal condition. The broker continues and tries the known addresses in turn.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence

import grpc
import structlog

from smq_broker.access.security import Security
from smq_broker.leader_client.leader_channels import LeaderChannels
from smq_broker.leader_client.reports import BrokerStatusReporter
from smq_broker.runtime.clock import Clock
from smq_broker.runtime.threads import Task, ThreadSupervisor
from smq_broker.segments.registry import SegmentRegistry
from smq_broker.segments.seal_watcher import SealWatcher
from smq_core.errors import (
    InvalidRequest,
    NotLeader,
    PermissionDenied,
    SmqError,
    Unauthenticated,
    Unavailable,
    WrongIncarnation,
)
from smq_proto.v1 import brokers_pb2
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1.brokers_pb2_grpc import BrokersStub
from smq_proto.wire import PROTOCOL

REPORT_SECONDS = 1.0
POLL_SECONDS = 0.1
COALESCE_SECONDS = 0.01
REPORT_TIMEOUT_SECONDS = 1.0
# What a leader answers that does not accept this broker's reports.
_REJECTIONS = (InvalidRequest, Unauthenticated, PermissionDenied)
_CHANNEL = [
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
]

log = structlog.get_logger(__name__)


class LeaderSession:
    """``may_leave`` is set when the leader reports that no layout names this incarnation any more."""

    def __init__(
        self,
        *,
        address: str,
        node: str,
        zone: str,
        leaders: Sequence[str],
        channels: LeaderChannels,
        security: Security,
        reporter: BrokerStatusReporter,
        registry: SegmentRegistry,
        watcher: SealWatcher,
        clock: Clock,
        threads: ThreadSupervisor,
        report_due: threading.Event,
        leaving: Callable[[], bool],
        kafka_address: str = "",
    ) -> None:
        self._address, self._node, self._zone = address, node, zone
        self._kafka_address = kafka_address
        self._reporter = reporter
        self._registry = registry
        self._watcher = watcher
        self._clock = clock
        self._threads = threads
        self._report_due = report_due
        self._leaving = leaving
        self._leaders = list(leaders)
        self._channels = channels
        self._security = security
        self._leader_index = 0
        self._channel: grpc.Channel | None = None
        self._unresponsive: list[str] = []
        self._connected: bool | None = None
        self._has_disk = True
        """Whether the journals' disk answered at the last report."""
        self._rejection = ""
        """The last message of a leader that does not accept this broker's reports, such as one of another protocol."""
        self.may_leave = threading.Event()
        self.others_drain: bool | None = None
        """Whether another broker drains, from the last answer of a leader; None before the first answer."""
        self.answered_at = time.monotonic()
        self._last_answer = brokers_pb2.BrokerReportReply()

    def leaders(self) -> list[str]:
        """The known addresses of leaders, the current one first."""
        index = self._leader_index % len(self._leaders) if self._leaders else 0
        return self._leaders[index:] + self._leaders[:index]

    def kafka_listeners(self) -> dict[str, str]:
        """Where Kafka clients reach each living broker, by incarnation, from the last answer of a leader."""
        return {it.incarnation: it.address for it in self._last_answer.kafka_listeners}

    def start(self) -> None:
        """Raises Unavailable if the system starts no more threads."""
        self._threads.start(Task(kind="leader-session", run=self._run, endless=True))

    def _run(self) -> None:
        last = -math.inf  # the first report is due at once, also on a machine that has just started
        while True:
            report_due = self._report_due.wait(POLL_SECONDS)
            unresponsive = self._registry.unresponsive_followers()
            due = time.monotonic() - last >= REPORT_SECONDS
            if not (report_due or due or unresponsive != self._unresponsive):
                continue
            if report_due:
                # Changes that follow each other closely go into one report.
                threading.Event().wait(COALESCE_SECONDS)
                self._report_due.clear()
            if due:
                last = time.monotonic()
                self._clock.follow()
                self._registry.remove_expired()
            self._unresponsive = unresponsive
            if self._leaders and not self._report(unresponsive):
                self._report_due.set()
                threading.Event().wait(POLL_SECONDS)

    def _status(self) -> pb.BrokerStatus | None:
        """None while the journals' disk does not answer. Without reports the leader moves the segments elsewhere."""
        try:
            status = self._reporter.status()
        except Unavailable as error:
            if self._has_disk:
                log.error("journal.stalled", error=error.message)
            self._has_disk = False
            return None
        if not self._has_disk:
            log.info("journal.answers_again")
        self._has_disk = True
        return status

    def _report(self, unresponsive: Sequence[str]) -> bool:
        """Reports to the leader. Tries each address at most once, until one answers and is the leader.

        False if there is nothing to report: see ``_status``.
        """
        for _ in range(len(self._leaders)):
            status = self._status()
            if status is None:
                return False
            report = brokers_pb2.BrokerReport(
                protocol=PROTOCOL,
                broker=self._reporter.broker,
                incarnation=self._registry.incarnation,
                address=self._address,
                node=self._node,
                zone=self._zone,
                status=status,
                unresponsive=unresponsive,
                leaving=self._leaving(),
                recovered=self._reporter.recovered_incarnations(),
                last_leader=self._last_answer.leader,
                last_answer=self._last_answer.answer,
                authorities=self._security.authorities,
                kafka_address=self._kafka_address,
            )
            leader = self._leaders[self._leader_index % len(self._leaders)]
            try:
                if self._channel is None:
                    self._channel = self._channels.connect(leader, _CHANNEL)
                reply = BrokersStub(self._channel).Report(report, timeout=REPORT_TIMEOUT_SECONDS)
            except grpc.RpcError as error:
                self._try_next_leader(leader, self._channels.failure_of(error, leader))
                continue
            except Unauthenticated as error:  # the roots cannot be read
                self._try_next_leader(leader, error)
                continue
            self._log_connectivity(True, leader)
            self.answered_at = time.monotonic()
            self._watcher.set_assigned_segments(reply.assigned)
            self.others_drain = reply.others_drain
            if reply.leader != self._last_answer.leader:
                self._report_due.set()  # the next report proves to this leader that former incarnations have ended
            self._last_answer = reply
            self._security.follow(reply.authorities)
            if reply.drain:
                self._registry.drain()
            if reply.may_leave and report.leaving:
                self.may_leave.set()
            return True
        self._log_connectivity(False, ",".join(self._leaders))
        return True

    def _try_next_leader(self, leader: str, failure: SmqError | None) -> None:
        self._drop_channel()
        self._leader_index += 1
        if isinstance(failure, WrongIncarnation):
            # Its segments may have been sealed without it, and no leader gives it others. The next process is of use.
            self._watcher.set_assigned_segments(())
            self._threads.end_process(f"the leader has declared this process gone: {failure.message}")
        if isinstance(failure, _REJECTIONS) and failure.message != self._rejection:
            self._rejection = failure.message
            log.error("leader.report_rejected", leader=leader, message=failure.message)
        redirect = failure.leader if isinstance(failure, NotLeader) else None
        if redirect:
            if redirect not in self._leaders:
                self._leaders.append(redirect)
            self._leader_index = self._leaders.index(redirect)

    def _drop_channel(self) -> None:
        channel, self._channel = self._channel, None  # first, because a call on a closed channel is an unexpected error
        if channel is not None:
            channel.close()

    def _log_connectivity(self, connected: bool, leader: str) -> None:
        if connected is not self._connected:
            self._connected = connected
            if connected:
                log.info("leader.connected", leader=leader)
            else:
                log.warning("leader.disconnected", addresses=leader)
