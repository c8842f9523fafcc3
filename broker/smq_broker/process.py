"""The broker process, from its settings to its exit code. ``main`` starts it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from urllib.parse import urlsplit

import structlog
from prometheus_client import CollectorRegistry

from smq_broker import logs, metrics
from smq_broker.actions import Actions
from smq_broker.calm import Calm
from smq_broker.clock import Clock
from smq_broker.health import HealthServer
from smq_broker.holdings import Holdings
from smq_broker.lean import keep_freed_memory, rest_collector, warm_up
from smq_broker.locator import Locator
from smq_broker.memory import Memory
from smq_broker.meters import Meters
from smq_broker.readiness import Readiness
from smq_broker.server import BrokerServer
from smq_broker.session import LeaderSession
from smq_broker.settings import BrokerSettings, parse_settings
from smq_core.errors import InvalidRequest, StoreUnavailable, StoreUnfit
from smq_storage import glibc
from smq_storage.probe import probe
from smq_storage.store import Store, StoreDenied

EXIT_USAGE = 2
EXIT_STORE = 3
LAST_WORDS = 0.3
LONGEST_PROBE_PAUSE = 5.0

log = structlog.get_logger()


class Broker:
    """Everything wired together. ``run`` returns the exit code when it is time to go."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self.incarnation = settings.new_incarnation()
        self._stop = threading.Event()
        self._signals = 0
        self._not_ready: str | None = "the filer has not been probed yet"
        self._readiness: Readiness | None = None
        self._session: LeaderSession | None = None

    def on_signal(self, *_: object) -> None:
        """The first one asks to leave, the second one leaves."""
        self._signals += 1
        if self._signals > 1:
            leave(0)
        self._stop.set()

    def run(self) -> int:
        settings = self.settings
        registry = CollectorRegistry()
        meters = Meters(registry)
        health = HealthServer(settings.http, registry, self._why_not_ready)
        store = settings.store().open()
        refusal = self._probe(store, health.address)
        if refusal is not None:
            return refusal
        clock, news, intake = Clock(), threading.Event(), threading.Event()
        intake.set()
        news.set()
        holdings = Holdings(self.incarnation, store, Memory(settings.memory), clock, meters, news)
        metrics.register(registry, holdings)
        locator = Locator(store, settings.store())
        actions = Actions(settings.name, holdings, locator)
        server = BrokerServer(settings.listen, holdings, actions, meters, intake, settings.max_batch)
        address = settings.advertised(server.port)
        session = LeaderSession(
            settings.name,
            address,
            settings.node,
            settings.zone,
            settings.leader,
            holdings,
            clock,
            news,
            self._stop.is_set,
        )
        warm_up()
        holdings.start()
        session.start()
        relay = self._relay(session, address, registry)
        rest_collector()
        self._readiness = Readiness(bool(settings.leader), time.monotonic())
        self._session = session
        self._not_ready = None
        log.info(
            "broker.ready",
            address=address,
            http=health.address,
            relay=relay,
            incarnation=self.incarnation,
            pid=os.getpid(),
        )
        calm = Calm(holdings.bytes_in)
        while not self._stop.wait(0.5):
            if calm.look(time.monotonic()):
                glibc.give_back()
            if holdings.draining:
                self._not_ready = "draining"
        self._leave(holdings, session, news, intake)
        return 0

    def _why_not_ready(self) -> str | None:
        if self._not_ready is None and self._readiness is not None and self._session is not None:
            return self._readiness.why_not(self._session.others_drain, time.monotonic())
        return self._not_ready

    def _relay(self, session: LeaderSession, address: str, registry: CollectorRegistry) -> str | None:
        """Where it listens; None when none is wanted, which spares its imports too."""
        if not self.settings.relay:
            return None
        from smq_broker.relay import Relay
        from smq_broker.targets import Targets

        filer = urlsplit(self.settings.filer_endpoint)
        always = [address, f"{filer.hostname}:{filer.port or 80}"] if filer.scheme == "http" else [address]
        relay = Relay(self.settings.relay, Targets(session.leaders, always), registry)
        relay.start()
        return relay.address

    def _probe(self, store: Store, http: str) -> int | None:
        """Returns when the filer proved fit; the exit code when it never will, or when it is time to stop."""
        pause = 0.2
        while True:
            try:
                probe(store)
                return None
            except (StoreUnfit, StoreDenied) as error:
                log.error("store.unfit", error=error.message)
                print(f"smq-broker: {error.message}", file=sys.stderr)
                return EXIT_STORE
            except StoreUnavailable as error:
                self._not_ready = f"the filer does not answer: {error.message}"
                log.warning("store.unavailable", error=error.message, retry_in=pause, http=http)
            if self._stop.wait(pause):
                return 0
            pause = min(pause * 2, LONGEST_PROBE_PAUSE)

    def _leave(
        self, holdings: Holdings, session: LeaderSession, news: threading.Event, intake: threading.Event
    ) -> None:
        """Serves on until the leader has sealed what is here; without a leader, writes own tails and goes."""
        self._not_ready = "leaving"
        asked = time.monotonic()
        log.info("broker.leaving", segments=len(holdings.all()))
        holdings.drain()
        news.set()
        while not session.may_leave.wait(0.1):
            now = time.monotonic()
            heard = max(session.answered_at, asked) if self.settings.leader else asked
            if now - heard > self.settings.leaderless or now - asked > self.settings.grace:
                self._write_tails(holdings, intake)
                break
        log.info("broker.left", sealed=session.may_leave.is_set())
        # The last acks and outcomes are on their way to the streams.
        time.sleep(LAST_WORDS)

    def _write_tails(self, holdings: Holdings, intake: threading.Event) -> None:
        log.info("broker.flushing")
        intake.clear()
        while waiting := holdings.flush_all():
            log.debug("broker.waits_for_flush", segments=waiting)
            time.sleep(0.05)


def leave(code: int) -> None:
    """Ends the process at once: with streams open, an orderly end of the Flight server would never come."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run() -> None:
    """Does what the command line says, and ends the process."""
    try:
        settings = parse_settings(sys.argv[1:])
    except InvalidRequest as error:
        print(f"smq-broker: {error.message}", file=sys.stderr)
        leave(EXIT_USAGE)
        return
    logs.configure(settings.log_level, settings.log_format, broker=settings.name)
    keep_freed_memory(settings.memory)
    broker = Broker(settings)
    signal.signal(signal.SIGTERM, broker.on_signal)
    signal.signal(signal.SIGINT, broker.on_signal)
    try:
        code = broker.run()
    except InvalidRequest as error:
        print(f"smq-broker: {error.message}", file=sys.stderr)
        code = EXIT_USAGE
    except OSError as error:
        log.error("broker.failed", error=str(error))
        print(f"smq-broker: cannot listen on {settings.listen} or {settings.http}: {error}", file=sys.stderr)
        code = 1
    except Exception:
        log.exception("broker.failed")
        code = 1
    leave(code)
