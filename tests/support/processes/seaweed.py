"""Fixtures with a real SeaweedFS. A conftest.py imports them for the tests in its folder.

The folder is a package, so that SeaweedFS ends with its last test and not with the run.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from smq_storage.object_store.store import Store
from smq_storage.process.seaweedfs import SeaweedProcess
from support.fault_injection.store_proxy import StoreProxy

Seaweed = SeaweedProcess


@pytest.fixture(scope="package")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    """One SeaweedFS for all tests of a folder. A test that stops it must start it again."""
    with SeaweedProcess(tmp_path_factory.mktemp("seaweed")) as process:
        yield process


@pytest.fixture(scope="package")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    """One SeaweedFS for all tests of a folder that takes requests with its credentials only."""
    with SeaweedProcess(tmp_path_factory.mktemp("guarded"), access_key="key", secret_key="secret") as process:
        yield process


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment has none."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def prefix() -> str:
    """A separate root for each test."""
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
def filer_store(seaweed: Seaweed, prefix: str) -> Store:
    """A store on SeaweedFS that only this test uses."""
    return seaweed.store(prefix)


@pytest.fixture
def faulty(seaweed: Seaweed) -> Iterator[StoreProxy]:
    """A proxy before SeaweedFS that injects faults."""
    with StoreProxy(seaweed.endpoint) as proxy:
        yield proxy
