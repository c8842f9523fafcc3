"""Runs ``smq-operator local``."""

from __future__ import annotations

import asyncio

from smq_core.errors import InvalidRequest
from smq_operator.leader_process import Standalone, run_leader
from smq_operator.local.folder import FolderLock, folder_id
from smq_operator.local.settings import LocalSettings
from smq_operator.runtime import clock


def run(settings: LocalSettings) -> None:
    """Raises InvalidRequest, StoreUnsupported."""
    folder = settings.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidRequest(f"cannot make the folder {folder} ({error.strerror}): choose another --dir") from None
    lock = FolderLock(folder)
    lock.acquire()
    environment = settings.store.to_env()
    from smq_operator.local.platform import LocalPlatform  # needs the extra `local`, which the image lacks

    election = Standalone(folder_id(folder), settings.fleet_policy)
    asyncio.run(
        run_leader(
            settings,
            lambda address, _, tasks: LocalPlatform(settings, address, environment, clock.now, tasks),
            lambda *_: election,
        )
    )
