"""One `smq dev` for all tests of this folder that do not stop it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes.cli import DevProcess, smq

REPOSITORY = Path(__file__).resolve().parents[3]

_numbers = itertools.count()


@pytest.fixture(scope="package")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevProcess]:
    running = DevProcess(tmp_path_factory.mktemp("dev") / "data")
    try:
        yield running.wait_ready()
    finally:
        running.end()


@pytest.fixture
def leader(dev: DevProcess) -> str:
    return dev.leader


@pytest.fixture
def topic(leader: str) -> str:
    """A topic of plain messages that only this test uses."""
    return made_topic(leader, "{partitions: 16, flush: {interval: 1s}}")


@pytest.fixture
def typed_topic(leader: str) -> str:
    """A topic with columns: name (the key, may be null), size."""
    schema = "[{name: name, type: string, nullable: true}, {name: size, type: int32}]"
    return made_topic(leader, f"{{partitions: 16, key: name, schema: {schema}}}")


def made_topic(leader: str, spec: str) -> str:
    name = f"t{next(_numbers)}"
    manifest = f"apiVersion: seaweedmq.io/v1alpha1\nkind: Topic\nmetadata: {{name: {name}}}\nspec: {spec}\n"
    ran = smq("apply", "-f", "-", leader=leader, stdin=manifest)
    assert (ran.code, ran.out) == (0, f"topic {name} created\n"), ran
    return name
