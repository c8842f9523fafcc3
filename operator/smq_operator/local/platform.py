"""The platform of one machine: a folder with topics, brokers, logs and the leader's lock.

::

    DIR/topics/*.yaml        the desired topics
    DIR/brokers/<name>.json  which process runs, and which have terminated
    DIR/brokers/<name>/      the broker's journal
    DIR/logs/<name>.log      output of brokers
    DIR/leader.lock          held by the one leader
    DIR/security/            with --secure: keys, tokens and the policy
    DIR/watermarks.json      up to where messages are acked
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import structlog

from smq_core.model.entities import TopicSpec
from smq_operator.local.broker_processes import BrokerProcesses, broker_command
from smq_operator.local.security.broker_credentials import BrokerCredentials
from smq_operator.local.settings import LocalSettings
from smq_operator.local.topic_manifests import TopicManifests
from smq_operator.platform_port import AppliedManifest, DesiredTopic, Problem, TerminationProof
from smq_operator.runtime.task_runner import TaskRunner
from smq_storage.topic_manifests.parser import ManifestDocument
from smq_storage.topic_manifests.spec_patch import SpecPatch

log = structlog.get_logger(__name__)

BROKER_PREFIX = "broker-"
SCAN_INTERVAL_SECONDS = 0.5
STOP_TIMEOUT_SECONDS = 20.0


Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _Found:
    topics: Mapping[str, DesiredTopic]
    problems: list[Problem]


class LocalPlatform:
    """See the module's docstring. ``leader`` is the address that brokers report to."""

    def __init__(
        self,
        *,
        settings: LocalSettings,
        leader: str,
        environment: dict[str, str],
        clock: Callable[[], int],
        tasks: TaskRunner,
        credentials: BrokerCredentials | None = None,
    ) -> None:
        self._settings = settings
        self._manifests = TopicManifests(settings.folder / "topics", clock)
        command = broker_command(settings.broker_memory, settings.broker_args, settings.broker_wrapper)
        self._processes = BrokerProcesses(
            folder=settings.folder,
            leader=leader,
            command=command,
            arguments_of=lambda name: settings.arguments_of(int(name.removeprefix(BROKER_PREFIX))),
            environment=environment,
            changed=self._notify_changed,
            journal=settings.journal,
            credentials=credentials,
        )
        self._changed: Callable[[], None] = lambda: None
        self._tasks = tasks
        self._count = settings.brokers
        self._names: list[str] = []
        self._thread = ThreadPoolExecutor(1, "topic-manifests")
        """Runs all calls of the manifests, one after the other."""
        self._found = self._noticed = _Found({}, [])
        """What the manifests say since the last call, and what the loop has noticed of that."""

    def _notify_changed(self) -> None:
        self._changed()

    async def start(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._manifests.folder.mkdir(parents=True, exist_ok=True)
        await self._scan()
        self._processes.adopt()
        self.scale_brokers(self._count)
        self._tasks.supervise("topic-manifests", self._scan_loop)

    async def stop(self) -> None:
        if self._settings.keep_brokers:
            self._processes.detach()
        else:
            await self._processes.stop(STOP_TIMEOUT_SECONDS)

    async def _scan_loop(self) -> None:
        while True:
            await asyncio.sleep(SCAN_INTERVAL_SECONDS)
            await self._scan()

    async def _scan(self) -> None:
        try:
            await self._run(self._manifests.scan)
        except OSError as error:
            log.error("topic_manifests.unreadable", folder=str(self._manifests.folder), message=str(error))

    async def _run(self, call: Callable[[], Result]) -> Result:
        """Runs a call of the manifests in their thread, because parsing may take most of a second."""

        def run() -> Result:
            try:
                return call()
            finally:
                self._found = _Found(self._manifests.desired_topics(), self._manifests.problems())

        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, run)
        finally:
            self._notice_changes()

    def _notice_changes(self) -> None:
        before, self._noticed = self._noticed, self._found
        for problem in self._noticed.problems:
            if problem not in before.problems:
                log.error("topic_manifest.rejected", file=problem.where, message=problem.message)
        if self._noticed != before:
            self._changed()

    def desired_topics(self) -> Mapping[str, DesiredTopic]:
        return self._noticed.topics

    def problems(self) -> list[Problem]:
        return self._noticed.problems

    async def apply(self, manifest: ManifestDocument, preview: bool = False) -> AppliedManifest:
        return await self._run(lambda: self._manifests.apply(manifest, preview))

    async def delete(self, topic: str) -> None:
        await self._run(lambda: self._manifests.delete(topic))

    async def set_paused(self, topic: str, paused: bool) -> None:
        await self._run(lambda: self._manifests.set_paused(topic, paused))

    async def change_spec(self, topic: str, before: TopicSpec, patch: SpecPatch) -> None:
        await self._run(lambda: self._manifests.change_spec(topic, before, patch))

    def desired_brokers(self) -> int:
        return self._count

    def scale_brokers(self, count: int, stop_first: str | None = None) -> None:
        kept = [name for name in self._names if name != stop_first or count >= len(self._names)][:count]
        free = (f"{BROKER_PREFIX}{number}" for number in itertools.count(1))
        while len(kept) < count:
            name = next(free)
            if name not in kept:
                kept.append(name)
        self._count, self._names = count, kept
        self._processes.set_desired(kept)

    def restart_broker(self, name: str) -> None:
        self._processes.restart(name)

    def termination_proof(self, incarnation: str, reporting: bool = False) -> TerminationProof | None:
        return self._processes.termination_proof(incarnation)

    def is_current_incarnation(self, broker: str, incarnation: str) -> bool | None:
        current = self._processes.current_incarnation(broker)
        return None if not current else current == incarnation
