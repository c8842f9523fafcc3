"""Looks for the brokers that serve Kafka clients, at the leader, again and again.

Brokers say it, too, in each Metadata response, so that the proxy needs the leader for the first one only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import structlog

from smq_broker.kafka.cluster import KafkaNode, node_id
from smq_broker.runtime.log_limiter import LogLimiter
from smq_core.errors import SmqError
from smq_core.model.addresses import split_address

INTERVAL_SECONDS, FIRST_INTERVAL_SECONDS = 5.0, 0.5

log = structlog.get_logger(__name__)


class BrokerDiscovery:
    """``list_brokers`` returns the addresses of listeners by incarnation, and blocks. ``wait`` returns True to end.

    With ``ca_file`` it looks whether the release has other roots, and calls ``on_roots`` then.
    """

    def __init__(
        self,
        list_brokers: Callable[[], Mapping[str, str]],
        *,
        on_brokers: Callable[[Iterable[KafkaNode]], None],
        wait: Callable[[float], bool],
        ca_file: str = "",
        on_roots: Callable[[], None] = lambda: None,
    ) -> None:
        self._list_brokers = list_brokers
        self._on_brokers = on_brokers
        self._wait = wait
        self._ca_file = ca_file
        self._on_roots = on_roots
        self._roots = self._read_roots()
        self._limiter = LogLimiter()
        self.problem: str | None = "no leader has listed the brokers yet"
        """Why no broker is known; None once one is."""

    def run(self) -> None:
        while True:
            self.check()
            if self._wait(INTERVAL_SECONDS if self.problem is None else FIRST_INTERVAL_SECONDS):
                return

    def check(self) -> None:
        """Once."""
        try:
            found = self._list_brokers()
        except SmqError as error:
            self._warn(f"no leader lists the brokers: {error.message}")
        else:
            self._on_brokers([KafkaNode(node_id(it), *split_address(address)) for it, address in found.items()])
            if found:
                self.problem = None
            else:
                self._warn("no broker has a listener for Kafka clients: start brokers with --kafka")
        roots = self._read_roots()
        if roots and roots != self._roots:
            self._roots = roots
            self._on_roots()

    def _warn(self, problem: str) -> None:
        if self.problem is not None:
            self.problem = problem
        left_out = self._limiter.admit("problem")
        if left_out is not None:
            log.warning("kafka_proxy.no_brokers", error=problem, left_out=left_out)

    def _read_roots(self) -> bytes:
        try:
            return Path(self._ca_file).read_bytes() if self._ca_file else b""
        except OSError:
            return b""
