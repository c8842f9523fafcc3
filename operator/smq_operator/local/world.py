"""The world port over one machine: a folder with topics, brokers, logs and the leader's lock.

::

    DIR/topics/*.yaml        what is wished
    DIR/brokers/<name>.json  who runs, and who is proved dead
    DIR/logs/<name>.log      what brokers say
    DIR/leader.lock          held by the one leader
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Mapping

import structlog

from smq_operator.local.manifests import Manifests
from smq_operator.local.processes import Processes, broker_command
from smq_operator.settings import LocalSettings
from smq_operator.world import Problem, Wish

log = structlog.get_logger()

SCAN_EVERY = 0.5
STOP_PATIENCE = 20.0


class LocalWorld:
    """See the module's docstring. ``leader`` is the address that brokers are told."""

    def __init__(
        self, settings: LocalSettings, leader: str, environment: dict[str, str], clock: Callable[[], int]
    ) -> None:
        self._settings = settings
        self._manifests = Manifests(settings.folder / "topics", clock)
        command = broker_command(settings.broker_memory, settings.broker_args, settings.broker_wrapper)
        self._processes = Processes(settings.folder, leader, command, environment, self._news)
        self._changed: Callable[[], None] = lambda: None
        self._scanner: asyncio.Task[None] | None = None
        self._count = settings.brokers
        self._names: list[str] = []
        self._problems: list[Problem] = []

    def _news(self) -> None:
        self._changed()

    async def start(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._manifests.folder.mkdir(parents=True, exist_ok=True)
        self._scan()
        self._processes.adopt()
        self.want_brokers(self._count)
        self._scanner = asyncio.create_task(self._keep_scanning())

    async def stop(self) -> None:
        if self._scanner is not None:
            self._scanner.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._scanner
        if self._settings.keep_brokers:
            self._processes.leave()
        else:
            await self._processes.stop(STOP_PATIENCE)

    async def _keep_scanning(self) -> None:
        while True:
            await asyncio.sleep(SCAN_EVERY)
            self._scan()

    def _scan(self) -> None:
        try:
            changed = self._manifests.scan()
        except OSError as error:
            log.error("manifests.unreadable", folder=str(self._manifests.folder), message=str(error))
            return
        problems = self._manifests.problems()
        for problem in problems:
            if problem not in self._problems:
                log.error("manifest.refused", file=problem.where, message=problem.message)
        self._problems = problems
        if changed:
            self._changed()

    def wishes(self) -> Mapping[str, Wish]:
        return self._manifests.wishes()

    def problems(self) -> list[Problem]:
        return self._problems

    async def apply(self, manifest: str) -> tuple[str, str]:
        done = self._manifests.apply(manifest)
        self._changed()
        return done

    async def delete(self, topic: str) -> None:
        self._manifests.delete(topic)
        self._changed()

    async def set_paused(self, topic: str, paused: bool) -> None:
        self._manifests.set_paused(topic, paused)
        self._changed()

    def brokers_wanted(self) -> int:
        return self._count

    def want_brokers(self, count: int, go: str | None = None) -> None:
        kept = [name for name in self._names if name != go or count >= len(self._names)][:count]
        free = (f"broker-{number}" for number in itertools.count(1))
        while len(kept) < count:
            name = next(free)
            if name not in kept:
                kept.append(name)
        self._count, self._names = count, kept
        self._processes.want(kept)

    def proof_of_death(self, incarnation: str) -> str | None:
        return self._processes.proof_of_death(incarnation)

    def claims(self, broker: str, incarnation: str) -> bool | None:
        current = self._processes.current(broker)
        return None if not current else current == incarnation
