"""The broker's session with the leader: a report each second, and at once when there is news.

That no leader answers is normal: the broker goes on, and asks the addresses it knows in turn.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import structlog

from smq_broker.clock import Clock
from smq_broker.holdings import Holdings
from smq_broker.report import broker_status
from smq_core.errors import NotLeader
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1 import leader_pb2 as leader_pb
from smq_proto.v1.leader_pb2_grpc import LeaderStub
from smq_proto.wire import PROTOCOL, error_from_pb

EVERY = 1.0
LOOK_EVERY = 0.1
AFTER_NEWS = 0.01
TIMEOUT = 1.0
ERROR_TRAILER = "smq-error-bin"
_CHANNEL = [
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
]

log = structlog.get_logger()


class LeaderSession:
    """``may_leave`` is set when the leader says that nothing of the layout names this incarnation any more."""

    def __init__(
        self,
        name: str,
        address: str,
        node: str,
        zone: str,
        leaders: Sequence[str],
        holdings: Holdings,
        clock: Clock,
        news: threading.Event,
        leaving: Callable[[], bool],
    ) -> None:
        self._name, self._address, self._node, self._zone = name, address, node, zone
        self._holdings = holdings
        self._clock = clock
        self._news = news
        self._leaving = leaving
        self._leaders = list(leaders)
        self._at = 0
        self._channel: grpc.Channel | None = None
        self._silent: list[str] = []
        self._heard: bool | None = None
        self.may_leave = threading.Event()
        self.others_drain: bool | None = None
        """Whether another broker drains, as a leader last said; None before any has answered."""
        self.answered_at = time.monotonic()

    def leaders(self) -> list[str]:
        """The known addresses of leaders, the one that is asked now first."""
        at = self._at % len(self._leaders) if self._leaders else 0
        return self._leaders[at:] + self._leaders[:at]

    def start(self) -> None:
        threading.Thread(target=self._run, name="leader-session", daemon=True).start()

    def _run(self) -> None:
        last = 0.0
        while True:
            news = self._news.wait(LOOK_EVERY)
            silent = self._holdings.silent()
            due = time.monotonic() - last >= EVERY
            if not (news or due or silent != self._silent):
                continue
            if news:
                # What comes together is told together.
                threading.Event().wait(AFTER_NEWS)
                self._news.clear()
            if due:
                last = time.monotonic()
                self._clock.follow()
                self._holdings.forget_old()
            self._silent = silent
            try:
                if self._leaders:
                    self._report(silent)
            except Exception:
                log.exception("leader.report_failed")

    def _report(self, silent: Sequence[str]) -> None:
        """Tells one leader; when it does not answer or is not the leader, the next one, each at most once."""
        for _ in range(len(self._leaders)):
            report = leader_pb.BrokerReport(
                protocol=PROTOCOL,
                broker=self._name,
                incarnation=self._holdings.incarnation,
                address=self._address,
                node=self._node,
                zone=self._zone,
                status=broker_status(self._name, self._holdings),
                silent=silent,
                leaving=self._leaving(),
            )
            leader = self._leaders[self._at % len(self._leaders)]
            try:
                if self._channel is None:
                    self._channel = grpc.insecure_channel(leader, _CHANNEL)
                reply = LeaderStub(self._channel).Report(report, timeout=TIMEOUT)
            except grpc.RpcError as error:
                self._next(error)
                continue
            self._note(True, leader)
            self.answered_at = time.monotonic()
            self._holdings.named_by_leader(reply.held)
            self.others_drain = reply.others_drain
            if reply.may_leave and report.leaving:
                self.may_leave.set()
            return
        self._note(False, ",".join(self._leaders))

    def _next(self, error: grpc.RpcError) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        self._at += 1
        told = _leader_in(error)
        if told:
            if told not in self._leaders:
                self._leaders.append(told)
            self._at = self._leaders.index(told)

    def _note(self, heard: bool, leader: str) -> None:
        if heard is not self._heard:
            self._heard = heard
            if heard:
                log.info("leader.answers", leader=leader)
            else:
                log.warning("leader.away", tried=leader)


def _leader_in(error: grpc.RpcError) -> str | None:
    """The address in a NotLeader answer."""
    trailers: Any = error.trailing_metadata() if isinstance(error, grpc.Call) else None
    for key, value in trailers or ():
        if key == ERROR_TRAILER and isinstance(value, bytes):
            refusal = error_from_pb(pb.Error.FromString(value))
            leader = refusal.details.get("leader") if isinstance(refusal, NotLeader) else None
            return str(leader) if leader else None
    return None
