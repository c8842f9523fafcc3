"""Runs ``smq-operator local``."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping

from smq_core.errors import InvalidRequest
from smq_operator.leader import Leader
from smq_operator.leader_process import BackgroundTask, Standalone, run_leader
from smq_operator.local.folder import FolderLock, folder_id
from smq_operator.local.security.folder import SecurityFolder
from smq_operator.local.settings import LocalSettings
from smq_operator.local.watermarks import WatermarkRecorder
from smq_operator.platform_port import Platform
from smq_operator.runtime import clock
from smq_operator.runtime.readiness import Readiness
from smq_operator.runtime.task_runner import TaskRunner
from smq_storage.process.extras import needs_extra
from smq_storage.process.file_modes import make_files_private


class LocalLeadership(Standalone):
    """The one leader of a folder, which also records the watermarks there."""

    def __init__(self, owner: str, settings: LocalSettings) -> None:
        super().__init__(owner, settings.fleet_policy)
        self._folder = settings.folder

    def background_tasks(self, leader: Leader) -> Mapping[str, BackgroundTask]:
        recorder = WatermarkRecorder(self._folder / "watermarks.json", leader.topics, leader.events)
        return {**super().background_tasks(leader), "watermarks": recorder.run}


def run(settings: LocalSettings) -> None:
    """Raises InvalidRequest, StoreUnsupported."""
    make_files_private()
    folder = settings.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidRequest(f"cannot make the folder {folder} ({error.strerror}): choose another --dir") from None
    lock = FolderLock(folder)
    lock.acquire()
    environment = settings.store.to_env()
    with needs_extra("smq-operator local", "local"):  # the image lacks it
        from smq_operator.local.platform import LocalPlatform

    owner = folder_id(folder)
    platform: Platform | None = None

    def has_ended(incarnation: str) -> bool:
        return platform is not None and platform.termination_proof(incarnation) is not None

    election, security, credentials = LocalLeadership(owner, settings), None, None
    if settings.security.knows_callers:
        kept = SecurityFolder(folder / "security", time.time, external_callers=settings.external_callers)
        kept.ensure(owner)
        brokers = kept.broker_tokens(has_ended)
        security = kept.open(brokers, f"{owner}-{os.getpid()}")
        credentials = kept.credentials(brokers, settings.security)

    def make_platform(address: str, _: Readiness, tasks: TaskRunner) -> Platform:
        nonlocal platform
        platform = LocalPlatform(
            settings=settings,
            leader=address,
            environment=environment,
            clock=clock.now,
            tasks=tasks,
            credentials=credentials,
        )
        return platform

    asyncio.run(run_leader(settings, make_platform, lambda *_: election, security))
