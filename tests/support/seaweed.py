"""Fixtures with a real SeaweedFS. A conftest.py that imports them offers them to its folder."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from smq_storage.seaweed import SeaweedProcess
from smq_storage.store import Store
from support.faulty_store import FaultyStore

Seaweed = SeaweedProcess


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    """One SeaweedFS for all tests of this run. A test that stops it must start it again."""
    with SeaweedProcess(tmp_path_factory.mktemp("seaweed")) as process:
        yield process


@pytest.fixture
def prefix() -> str:
    """A root of its own for each test."""
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
def filer_store(seaweed: Seaweed, prefix: str) -> Store:
    """A store on SeaweedFS that only this test uses."""
    return seaweed.store(prefix)


@pytest.fixture
def faulty(seaweed: Seaweed) -> Iterator[FaultyStore]:
    """A proxy before SeaweedFS that breaks what it is told to."""
    with FaultyStore(seaweed.endpoint) as proxy:
        yield proxy
