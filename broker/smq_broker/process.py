"""The broker process: constructs and connects its parts, runs until it is stopped, and shuts down."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import structlog
from prometheus_client import CollectorRegistry

from smq_broker.access.dialer import BrokerDialer
from smq_broker.access.security import OpenBroker
from smq_broker.file_lists.writer import FileListWriter
from smq_broker.journal.disk_activity import DiskActivity
from smq_broker.journal.folder import FormerIncarnation, JournalFolder
from smq_broker.journal.journal_metrics import JournalMetrics
from smq_broker.journal.segment_journal import JournalMeter
from smq_broker.leader_client.leader_channels import LeaderChannels
from smq_broker.leader_client.leader_session import LeaderSession
from smq_broker.leader_client.locator import Locator
from smq_broker.leader_client.reports import BrokerStatusReporter
from smq_broker.leader_client.securing import make_security
from smq_broker.memory.accounting import MemoryAccounting
from smq_broker.memory.trimmer import MemoryTrimmer
from smq_broker.producers.claims import ProducerClaims
from smq_broker.producers.upload_checker import UploadChecker
from smq_broker.recovery.recovered_logs import RecoveredLogs
from smq_broker.recovery.recovery_metrics import RecoveredCollector
from smq_broker.replication.connections import ReplicaConnections
from smq_broker.replication.lane_stream import CONNECTION
from smq_broker.replication.message_spacing import ActiveClients
from smq_broker.replication.replica_session import ReplicaSession
from smq_broker.runtime import logs
from smq_broker.runtime.broker_metrics import BrokerMetrics
from smq_broker.runtime.clock import Clock
from smq_broker.runtime.health import HealthServer, Readiness
from smq_broker.runtime.pauses import PauseCounter
from smq_broker.runtime.settings import BrokerSettings, parse_settings
from smq_broker.runtime.threads import ThreadSupervisor
from smq_broker.runtime.tuning import keep_freed_memory, preload_arrow, tune_garbage_collector
from smq_broker.segments.flusher import Flusher
from smq_broker.segments.opening import SegmentOpener
from smq_broker.segments.registry import SegmentRegistry
from smq_broker.segments.seal_watcher import SealWatcher
from smq_broker.segments.sealing import SegmentSealer
from smq_broker.segments.segment_metrics import SegmentCollector
from smq_broker.segments.stored_layouts import StoredLayouts
from smq_broker.shutdown import BrokerShutdown, NoSession, Session
from smq_broker.streams.actions import Actions
from smq_broker.streams.request_limit import RequestLimit
from smq_broker.streams.server import RequestHandler
from smq_broker.streams.servers import start_servers
from smq_core.errors import InvalidRequest, SmqError, StoreDenied, StoreUnavailable, StoreUnsupported
from smq_core.model.addresses import join_address, split_address
from smq_storage.catalog.root_format import ensure_root_format, root_id
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.conformance_probe import check_conformance
from smq_storage.object_store.store import Store
from smq_storage.process import allocator

if TYPE_CHECKING:
    from smq_broker.access.permissive_broker import PermissiveBroker
    from smq_broker.access.secure_broker import SecureBroker
    from smq_broker.kafka.proxy.process import KafkaProxy
    from smq_broker.kafka.service import KafkaService

EXIT_USAGE = 2
EXIT_STORE = 3
FINAL_REPLIES_SECONDS = 0.3
# How long the end of the process waits for file lists; the leader builds those that are not written by then.
FINAL_FILE_LISTS_SECONDS = 1.0
PUT_TIMEOUT_SECONDS = 10.0
MAX_PROBE_BACKOFF_SECONDS = 5.0

log = structlog.get_logger(__name__)


class Broker:
    """``run`` constructs all parts, serves, and returns the exit code."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self.incarnation = settings.new_incarnation()
        self._stop = threading.Event()
        self._not_ready: str | None = "the filer has not been probed yet"
        self._readiness: Readiness | None = None
        self._session: LeaderSession | None = None

    def stop(self) -> None:
        """Starts the shutdown."""
        self._stop.set()

    def run(self) -> int:
        settings = self.settings
        collectors = CollectorRegistry()
        broker_metrics = BrokerMetrics(collectors)
        threads = ThreadSupervisor(broker_metrics)
        health = HealthServer(settings.http, collectors, self._not_ready_reason, threads)
        store = settings.store().open()
        exit_code = self._probe(store, health.address)
        if exit_code is not None:
            return exit_code
        clock, report_due, accepting_batches = Clock(), threading.Event(), threading.Event()
        accepting_batches.set()
        report_due.set()
        memory = MemoryAccounting(settings.memory, settings.journal_size if settings.journal else 0)
        disk = DiskActivity()
        journal_metrics = JournalMetrics(disk)
        journal, formers = self._open_journal(store, journal_metrics, disk)
        recovered = RecoveredLogs(formers, store, clock, on_change=report_due.set)
        registry = SegmentRegistry(self.incarnation, on_drain=report_due.set)
        collectors.register(SegmentCollector(registry, memory))
        collectors.register(journal_metrics)
        collectors.register(RecoveredCollector(recovered))
        file_lists = FileListWriter(store, broker_metrics, threads)
        sealer = SegmentSealer(
            registry=registry, store=store, broker_metrics=broker_metrics, threads=threads, file_lists=file_lists
        )
        flusher = Flusher(
            hosted=registry.all,
            memory=memory,
            broker_metrics=broker_metrics,
            threads=threads,
            on_chunk_taken=sealer.follow_seal,
        )
        pauses = PauseCounter()
        watcher = SealWatcher(
            lambda: [*registry.all(), *recovered.unsealed()], pauses, threads, on_seal_found=sealer.record_seal
        )
        clients = ActiveClients()
        shut_down = partial(
            self._shut_down,
            registry=registry,
            flusher=flusher,
            sealer=sealer,
            recovered=recovered,
            accepting_batches=accepting_batches,
        )
        channels = LeaderChannels(settings.ca_file, settings.token_file, permissive=settings.permissive)
        security = self._secure(channels, registry, broker_metrics, health.address)
        if security is None:  # stopped before a leader let this broker serve
            shut_down(NoSession())
            return 0
        dialer = security.dialer
        connections = ReplicaConnections(
            self.incarnation,
            threads=threads,
            clients=clients,
            connect_flight=lambda address, incarnation: dialer.connect(address, incarnation, CONNECTION),
        )
        opener = SegmentOpener(
            registry=registry,
            store=store,
            memory=memory,
            clock=clock,
            pauses=pauses,
            flusher=flusher,
            sealer=sealer,
            connect_follower=lambda hosted, follower, on_fenced, on_death: ReplicaSession(
                hosted, follower=follower, on_fenced=on_fenced, on_death=on_death, connections=connections
            ),
            threads=threads,
            producer_limits=settings.producer_limits(),
            on_change=report_due.set,
            journal=journal,
        )
        reporter = BrokerStatusReporter(
            broker=settings.name, registry=registry, memory=memory, recovered=recovered, disk=disk
        )
        locator, claims = Locator(store, settings.store()), ProducerClaims(store, clock)
        layouts = StoredLayouts(store)
        actions = Actions(
            registry,
            opener=opener,
            sealer=sealer,
            reporter=reporter,
            locator=locator,
            claims=claims,
            recovered=recovered,
            layouts=layouts,
        )
        limit = RequestLimit()
        handler = RequestHandler(
            access=security.access,
            registry=registry,
            actions=actions,
            broker_metrics=broker_metrics,
            threads=threads,
            accepting_batches=accepting_batches,
            max_batch=settings.max_batch,
            uploads=UploadChecker(store),
            clients=clients,
            limit=limit,
        )
        server = start_servers(
            settings.listen, security=security, handler=handler, broker_metrics=broker_metrics, threads=threads
        )
        address = settings.advertised(server.port)
        kafka = self._listen_for_kafka_clients(
            registry,
            store=store,
            locator=locator,
            security=security,
            channels=channels,
            broker_metrics=broker_metrics,
            collectors=collectors,
            threads=threads,
        )
        session = LeaderSession(
            address=address,
            node=settings.node,
            zone=settings.zone,
            leaders=settings.leader,
            channels=channels,
            security=security,
            reporter=reporter,
            registry=registry,
            watcher=watcher,
            clock=clock,
            threads=threads,
            report_due=report_due,
            leaving=self._stop.is_set,
            kafka_address=kafka.address if kafka is not None else "",
        )
        preload_arrow()
        file_lists.start()
        flusher.start()
        watcher.start()
        recovered.start(threads)
        if settings.drain:
            self._stop.set()
        session.start()

        def renewed() -> None:
            if kafka is not None:
                kafka.renew(security.certificate)
            server.swap()

        security.start_renewal(renewed, threads)
        relay = self._relay(
            session, address=address, channels=channels, dialer=dialer, collectors=collectors, threads=threads
        )
        if kafka is not None:
            kafka.start()
        tune_garbage_collector()
        self._readiness = Readiness(bool(settings.leader), time.monotonic())
        self._session = session
        self._not_ready = None
        log.info(
            "broker.ready",
            address=address,
            http=health.address,
            relay=relay,
            kafka=kafka.address if kafka is not None else None,
            incarnation=self.incarnation,
            pid=os.getpid(),
        )
        if not settings.drain:
            self._serve(registry, threads, MemoryTrimmer(lambda: registry.bytes_in() + limit.refused_bytes))
        self._not_ready = "leaving"
        report_due.set()
        failure = threads.process_failure
        # After a failure the last flush may hang for ever, while a new process could serve.
        shut_down(session, max_flush=settings.grace if failure else None)
        # The streams still send the last acks and outcomes.
        time.sleep(FINAL_REPLIES_SECONDS)
        file_lists.wait_until_idle(FINAL_FILE_LISTS_SECONDS)
        return 1 if failure else 0

    def _open_journal(
        self, store: Store, meter: JournalMeter, disk: DiskActivity
    ) -> tuple[JournalFolder | None, Sequence[FormerIncarnation]]:
        """The journal and what former processes left in it. Raises InvalidRequest if the folder cannot be used."""
        if not self.settings.journal:
            return None, ()
        root = root_id(store)
        journal = JournalFolder(
            folder=Path(self.settings.journal), incarnation=self.incarnation, root=root, meter=meter, activity=disk
        )
        journal.lock()
        formers = journal.recover()
        try:
            journal.begin()
        except OSError as error:
            log.error(
                "journal.failed",
                folder=self.settings.journal,
                error=str(error),
                advice="segments open without a journal here until its disk can be written: free or replace it",
            )
        return journal, formers

    def _secure(
        self, channels: LeaderChannels, registry: SegmentRegistry, broker_metrics: BrokerMetrics, http: str
    ) -> OpenBroker | SecureBroker | PermissiveBroker | None:
        """None if this broker is stopped before a leader lets it serve."""

        def show(reason: str, retry_in: float) -> None:
            self._not_ready = reason
            log.warning("login.failed", error=reason, retry_in=retry_in, http=http)

        return make_security(
            self.settings,
            self.incarnation,
            leaders=self._leaders,
            channels=channels,
            leader_answered_at=lambda: self._session.answered_at if self._session is not None else None,
            topic_name=registry.topic_name,
            broker_metrics=broker_metrics,
            wait=self._stop.wait,
            on_failure=show,
        )

    def _leaders(self) -> Sequence[str]:
        return self._session.leaders() if self._session is not None else self.settings.leader

    def _shut_down(
        self,
        session: Session,
        *,
        registry: SegmentRegistry,
        flusher: Flusher,
        sealer: SegmentSealer,
        recovered: RecoveredLogs,
        accepting_batches: threading.Event,
        max_flush: float | None = None,
    ) -> None:
        def seal_fenced() -> None:
            sealer.seal_fenced()
            recovered.seal_complete(sealer.start_at_exit)

        BrokerShutdown(
            registry=registry,
            session=session,
            flusher=flusher,
            seal_fenced=seal_fenced,
            accepting_batches=accepting_batches,
            has_leader=bool(self.settings.leader),
            leader_timeout=self.settings.leader_timeout,
            grace=self.settings.grace,
            max_flush=max_flush,
            recovered=recovered,
        ).run()

    def _serve(self, registry: SegmentRegistry, threads: ThreadSupervisor, trimmer: MemoryTrimmer) -> None:
        """Returns when the process is requested to end, or cannot do its work any more."""
        while not self._stop.wait(0.5):
            try:
                if trimmer.should_trim(time.monotonic()):
                    allocator.release_memory()
                if registry.draining:
                    self._not_ready = "draining"
            except Exception as error:
                threads.record_failure("main", "broker.poll_failed")
                threads.end_process(f"the main thread failed: {error}")
            if threads.process_failure:
                log.error("broker.failed", error=threads.process_failure)
                self._stop.set()

    def _not_ready_reason(self) -> str | None:
        if self._not_ready is None and self._readiness is not None and self._session is not None:
            return self._readiness.not_ready_reason(self._session.others_drain, time.monotonic())
        return self._not_ready

    def _relay(
        self,
        session: LeaderSession,
        *,
        address: str,
        channels: LeaderChannels,
        dialer: BrokerDialer,
        collectors: CollectorRegistry,
        threads: ThreadSupervisor,
    ) -> str | None:
        """Starts the relay and returns its address; None if it is not configured, which saves its imports too."""
        if not self.settings.relay:
            return None
        from smq_broker.streams.relay import Relay
        from smq_broker.streams.relay_targets import RelayTargets, list_brokers_by_address, read_incarnation_at

        filer = urlsplit(self.settings.filer_endpoint)
        static_targets = [address]
        if filer.scheme == "http":
            static_targets.append(join_address(filer.hostname or "", filer.port or 80))
        targets = RelayTargets(
            session.leaders,
            static_targets=static_targets,
            list_brokers=partial(list_brokers_by_address, channels),
            read_incarnation=partial(read_incarnation_at, dialer),
        )
        relay = Relay(self.settings.relay, targets, collectors, threads)
        relay.start()
        return relay.address

    def _listen_for_kafka_clients(
        self,
        registry: SegmentRegistry,
        *,
        store: Store,
        locator: Locator,
        security: OpenBroker | SecureBroker | PermissiveBroker,
        channels: LeaderChannels,
        broker_metrics: BrokerMetrics,
        collectors: CollectorRegistry,
        threads: ThreadSupervisor,
    ) -> KafkaService | None:
        """None if that is not configured, which saves the imports too. Raises OSError if the port cannot be bound."""
        if not self.settings.kafka:
            return None
        from smq_broker.kafka.service import KafkaService
        from smq_broker.leader_client.topic_admin import TopicAdmin

        checks = None
        if not isinstance(security, OpenBroker):
            from smq_broker.kafka.security.listener_security import ListenerSecurity
            from smq_broker.leader_client.callers_of_kafka import CallersOfKafka

            checks = ListenerSecurity(
                security.certificate,
                access=security.secure_access,
                callers=CallersOfKafka(self._leaders, channels),
                broker_metrics=broker_metrics,
                permissive=security.permissive,
            )
        return KafkaService(
            self.settings.kafka,
            advertised=lambda bound: self.settings.kafka_advertised(split_address(bound)[1]),
            cluster_id=root_id(store),
            registry=registry,
            store=store,
            locator=locator,
            listeners=lambda: self._session.kafka_listeners() if self._session is not None else {},
            max_batch=self.settings.max_batch,
            group_settings=self.settings.kafka_groups(),
            admin=TopicAdmin(self._leaders, channels),
            auto_create_topics=self.settings.kafka_auto_create_topics,
            collectors=collectors,
            threads=threads,
            security=checks,
        )

    def _probe(self, store: Store, http: str) -> int | None:
        """None once the filer passed the probe; the exit code if it never will, or if the process is stopped."""
        pause = 0.2
        while True:
            try:
                check_conformance(store)
                ensure_root_format(store, RetryPolicy(PUT_TIMEOUT_SECONDS))
                return None
            except (StoreUnsupported, StoreDenied) as error:
                log.error("store.rejected", error=error.message)
                print_error(error.message)
                return EXIT_STORE
            except StoreUnavailable as error:
                self._not_ready = f"the filer does not answer: {error.message}"
                log.warning("store.unavailable", error=error.message, retry_in=pause, http=http)
            if self._stop.wait(pause):
                return 0
            pause = min(pause * 2, MAX_PROBE_BACKOFF_SECONDS)


def print_error(message: str) -> None:
    """Tells the user. The terminal may be gone, which must not stop the process from ending."""
    with suppress(OSError, ValueError):
        print(f"smq-broker: {message}", file=sys.stderr)


def exit_process(code: int) -> None:
    """Ends the process at once, because the Flight server waits for open streams before it stops."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)


def _kafka_proxy(settings: BrokerSettings) -> KafkaProxy:
    from smq_broker.kafka.proxy.process import KafkaProxy

    return KafkaProxy(settings)


def run() -> None:
    """Runs a broker with the settings of the command line, and ends the process."""
    try:
        settings = parse_settings(sys.argv[1:])
    except InvalidRequest as error:
        print_error(error.message)
        exit_process(EXIT_USAGE)
        return
    logs.configure(settings.log_level, settings.log_format, broker=settings.name)
    keep_freed_memory(settings.memory)
    process = _kafka_proxy(settings) if settings.kafka_proxy else Broker(settings)
    signals = 0

    def on_signal(*_: object) -> None:
        """The first signal starts the shutdown, the second one ends the process."""
        nonlocal signals
        signals += 1
        if signals > 1:
            exit_process(0)
        process.stop()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    try:
        code = process.run()
    except InvalidRequest as error:
        print_error(error.message)
        code = EXIT_USAGE
    except SmqError as error:
        log.error("broker.failed", error=error.message)
        print_error(error.message)
        code = 1
    except OSError as error:
        log.error("broker.failed", error=str(error))
        print_error(f"cannot listen on {settings.listen} or {settings.http}: {error}")
        code = 1
    except Exception:
        log.exception("broker.failed")
        code = 1
    exit_process(code)
