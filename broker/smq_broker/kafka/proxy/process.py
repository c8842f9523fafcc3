"""The process of a proxy for Kafka clients: it has no segments, no journal and no filer."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import structlog
from prometheus_client import CollectorRegistry

from smq_broker.access.security import OpenBroker
from smq_broker.kafka.proxy.brokers.dialer import ClientTls
from smq_broker.kafka.proxy.brokers.discovery import BrokerDiscovery
from smq_broker.kafka.proxy.service import KafkaProxyService
from smq_broker.leader_client.kafka_brokers import list_kafka_brokers
from smq_broker.leader_client.leader_channels import LeaderChannels
from smq_broker.leader_client.securing import make_security
from smq_broker.runtime.broker_metrics import BrokerMetrics
from smq_broker.runtime.health import HealthServer
from smq_broker.runtime.settings import BrokerSettings
from smq_broker.runtime.threads import Task, ThreadSupervisor
from smq_broker.runtime.tuning import tune_garbage_collector
from smq_core.model.addresses import split_address

if TYPE_CHECKING:
    from smq_broker.access.permissive_broker import PermissiveBroker
    from smq_broker.access.secure_broker import SecureBroker
    from smq_broker.kafka.security.listener_security import ListenerSecurity

# How long a proxy that ends still takes connections: a load balancer needs a moment to see that it is not ready.
LEAVING_SECONDS = 3.0
# Of its memory, for requests that are larger than usual.
REQUEST_SHARE = 4
CHECK_SECONDS = 0.5

log = structlog.get_logger(__name__)


class KafkaProxy:
    """``run`` constructs all parts, serves, and returns the exit code."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self._incarnation = settings.new_incarnation()
        self._stop = threading.Event()
        self._not_ready: str | None = "it has not logged in at a leader yet"
        self._discovery: BrokerDiscovery | None = None

    def stop(self) -> None:
        """Starts the shutdown."""
        self._stop.set()

    def run(self) -> int:
        settings = self.settings
        collectors = CollectorRegistry()
        broker_metrics = BrokerMetrics(collectors)
        threads = ThreadSupervisor(broker_metrics)
        health = HealthServer(settings.http, collectors, self._not_ready_reason, threads)
        channels = LeaderChannels(settings.ca_file, settings.token_file, permissive=settings.permissive)
        security = self._secure(channels, broker_metrics)
        if security is None:
            return 0
        service = KafkaProxyService(
            settings.kafka,
            advertised=lambda bound: settings.kafka_advertised(split_address(bound)[1]),
            request_memory=settings.memory // REQUEST_SHARE,
            collectors=collectors,
            threads=threads,
            security=self._checks(security, channels, broker_metrics),
            roots=ClientTls(settings.ca_file) if settings.ca_file else None,
        )
        security.start_renewal(lambda: service.renew(security.certificate), threads)
        self._discovery = BrokerDiscovery(
            lambda: list_kafka_brokers(lambda: settings.leader, channels),
            on_brokers=service.show_brokers,
            wait=self._stop.wait,
            ca_file=settings.ca_file,
            on_roots=lambda: security.follow("other roots"),
        )
        threads.start(Task(kind="kafka-brokers", run=self._discovery.run))
        service.start()
        tune_garbage_collector()
        self._not_ready = None
        log.info("kafka_proxy.ready", kafka=service.address, http=health.address, pid=os.getpid())
        while not self._stop.wait(CHECK_SECONDS) and not threads.process_failure:
            pass
        if threads.process_failure:
            log.error("kafka_proxy.failed", error=threads.process_failure)
            return 1
        self._not_ready = "leaving"
        threading.Event().wait(LEAVING_SECONDS)
        service.stop()
        return 0

    def _secure(
        self, channels: LeaderChannels, broker_metrics: BrokerMetrics
    ) -> OpenBroker | SecureBroker | PermissiveBroker | None:
        """None if this process is stopped before a leader lets it serve."""

        def show(reason: str, retry_in: float) -> None:
            self._not_ready = reason
            log.warning("login.failed", error=reason, retry_in=retry_in)

        return make_security(
            self.settings,
            self._incarnation,
            leaders=lambda: self.settings.leader,
            channels=channels,
            leader_answered_at=lambda: None,
            topic_name=str,
            broker_metrics=broker_metrics,
            wait=self._stop.wait,
            on_failure=show,
        )

    def _checks(
        self,
        security: OpenBroker | SecureBroker | PermissiveBroker,
        channels: LeaderChannels,
        broker_metrics: BrokerMetrics,
    ) -> ListenerSecurity | None:
        if isinstance(security, OpenBroker):
            return None
        from smq_broker.kafka.security.listener_security import ListenerSecurity
        from smq_broker.leader_client.callers_of_kafka import CallersOfKafka

        return ListenerSecurity(
            security.certificate,
            access=security.secure_access,
            callers=CallersOfKafka(lambda: self.settings.leader, channels),
            broker_metrics=broker_metrics,
            permissive=security.permissive,
        )

    def _not_ready_reason(self) -> str | None:
        if self._not_ready is None and self._discovery is not None:
            return self._discovery.problem
        return self._not_ready
