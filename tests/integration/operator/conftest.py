from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from smq_storage.object_store.store import Store, StoreSettings
from support.processes.leader import LeaderProcess
from support.processes.seaweed import Seaweed, prefix, seaweed

__all__ = ["prefix", "seaweed"]


@pytest.fixture
def settings(seaweed: Seaweed, prefix: str) -> StoreSettings:
    return seaweed.settings(prefix, timeout=3.0)


@pytest.fixture
def store(settings: StoreSettings) -> Store:
    return settings.open()


@pytest.fixture
def new_leader(tmp_path: Path, settings: StoreSettings) -> Iterator[Callable[..., LeaderProcess]]:
    """Makes leaders (not started) whose processes end with the test."""
    made: list[LeaderProcess] = []

    def make(*flags: str, brokers: int = 3, folder: str = "leader") -> LeaderProcess:
        made.append(LeaderProcess(tmp_path / folder, settings, *flags, brokers=brokers))
        return made[-1]

    yield make
    for leader in made:
        leader.stop()


@pytest.fixture
def leader(new_leader: Callable[..., LeaderProcess]) -> LeaderProcess:
    """A leader with three brokers that have reported."""
    started = new_leader().start()
    started.wait_for_brokers()
    return started
