"""The platform of one machine, without brokers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from smq_core.errors import SmqError, UnknownTopic
from smq_core.model.entities import TopicSpec
from smq_operator.local.platform import LocalPlatform
from smq_operator.local.settings import LocalSettings
from smq_operator.runtime.task_runner import TaskRunner
from smq_storage.topic_manifests.parser import parse_document
from support.processes.leader import manifest


class LoopWatch:
    """A clock of manifests, which they read when they look at the folder: it says whether that holds up the loop."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self.now = 0

    def __call__(self) -> int:
        self.threads.append(threading.current_thread())
        return self.now


class Changes:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture
def watch() -> LoopWatch:
    return LoopWatch()


@pytest.fixture
async def platform(tmp_path: Path, watch: LoopWatch) -> AsyncIterator[LocalPlatform]:
    settings = LocalSettings(filer_url="s3://x", dir=tmp_path, brokers=0)
    tasks = TaskRunner()
    platform = LocalPlatform(settings=settings, leader="127.0.0.1:1", environment={}, clock=watch, tasks=tasks)
    yield platform
    await tasks.stop()
    await platform.stop()


async def test_topics_are_those_of_the_folder_at_the_start(platform: LocalPlatform, tmp_path: Path) -> None:
    (tmp_path / "topics").mkdir()
    (tmp_path / "topics" / "a.yaml").write_text(manifest("a"))
    (tmp_path / "topics" / "b.yaml").write_text("kind: [")
    changes = Changes()
    await platform.start(changes)
    assert set(platform.desired_topics()) == {"default/a"} and changes.count == 1
    assert [problem.where for problem in platform.problems()] == ["b.yaml"]


async def test_an_edit_is_seen_when_it_returns(platform: LocalPlatform) -> None:
    changes = Changes()
    await platform.start(changes)
    await platform.apply(parse_document(manifest("a")), preview=True)
    assert not platform.desired_topics() and changes.count == 0
    await platform.apply(parse_document(manifest("a")))
    assert not platform.desired_topics()["default/a"].paused and changes.count == 1
    await platform.set_paused("default/a", True)
    assert platform.desired_topics()["default/a"].paused and changes.count == 2
    await platform.change_spec("default/a", platform.desired_topics()["default/a"].spec, {"replicas": 3})
    assert platform.desired_topics()["default/a"].spec.replicas == 3 and changes.count == 3
    await platform.delete("default/a")
    assert not platform.desired_topics() and changes.count == 4


async def test_no_call_reads_manifests_on_the_loop(platform: LocalPlatform, watch: LoopWatch, tmp_path: Path) -> None:
    await platform.start(lambda: None)
    for call in (
        lambda: platform.apply(parse_document(manifest("b"))),
        lambda: platform.set_paused("default/a", True),
        lambda: platform.change_spec("default/a", TopicSpec(), {}),
        lambda: platform.delete("default/missing"),
    ):
        await platform.apply(parse_document(manifest("a")))
        (tmp_path / "topics" / "default.a.yaml").unlink()
        watch.threads.clear()
        with contextlib.suppress(SmqError):  # what the call makes of the missing file is not the question
            await call()
        assert watch.threads and threading.main_thread() not in watch.threads


async def test_a_call_whose_caller_has_gone_is_noticed(platform: LocalPlatform, tmp_path: Path) -> None:
    await platform.start(lambda: None)
    call = asyncio.ensure_future(platform.apply(parse_document(manifest("a"))))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(UnknownTopic):
        await platform.delete("default/missing")
    assert ("default/a" in platform.desired_topics()) == (tmp_path / "topics" / "default.a.yaml").exists()
