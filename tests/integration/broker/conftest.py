from collections.abc import Iterator
from pathlib import Path

import pytest

from smq_storage.object_store.store import Store, StoreSettings
from support.processes.broker import BrokerProcesses
from support.processes.seaweed import Seaweed, prefix, seaweed

__all__ = ["prefix", "seaweed"]


@pytest.fixture
def settings(seaweed: Seaweed, prefix: str) -> StoreSettings:
    return seaweed.settings(prefix, timeout=3.0)


@pytest.fixture
def store(settings: StoreSettings) -> Store:
    return settings.open()


@pytest.fixture
def brokers(tmp_path: Path, settings: StoreSettings) -> Iterator[BrokerProcesses]:
    started = BrokerProcesses(tmp_path, settings)
    yield started
    started.stop()
