"""Histories with the leader process's own code in virtual time: its loop, effects, service, groups and fleet.

One seed again: ``PYTHONPATH=tests python -m support.sim.loop_history SEED``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from smq_core.model import Topic
from smq_operator.registry import Registry
from smq_operator.service_people import PeopleService
from support.sim import loop_history
from support.sim.deleting import Deleting
from support.sim.elastic import quicker
from support.sim.loop_history import LoopHistory
from support.sim.many import failures
from support.sim.virtual_asyncio import Job, VirtualLoop
from support.sim.world import SECOND, Future, Process, World

pytestmark = pytest.mark.simulation

HISTORIES = 100
CHUNK = 20


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, HISTORIES, CHUNK))
def test_the_invariants_hold_with_the_real_loop(first: int, workers: ProcessPoolExecutor) -> None:
    found = failures(workers, loop_history.run, range(first, first + CHUNK))
    assert not found, f"{len(found)} of {CHUNK} histories failed; the first:\n{found[0]}"


def played(seed: int) -> LoopHistory:
    with quicker():
        history = LoopHistory(seed)
        history.run()
    return history


def test_a_seed_is_one_history() -> None:
    one, two = played(1), played(1)
    assert one.world.story.lines == two.world.story.lines
    assert one.decisions and any("layout.put" in words or "decision" in words for *_, words in one.world.story.lines)


@pytest.mark.timeout(300)
def test_a_leader_that_believes_silence_to_be_death_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unreachable is not gone: what a silent broker holds may not be given up."""
    original = Registry.check_proofs

    def check_proofs(self: Registry, layouts: Any, now: int) -> Any:
        for broker in self.all():
            if broker.liveness(now).value == "suspect":
                broker.gone = "it is silent"
        return original(self, layouts, now)

    monkeypatch.setattr(Registry, "check_proofs", check_proofs)
    assert any(loop_history.run(seed) for seed in range(60))


@pytest.mark.timeout(300)
def test_a_leader_that_answers_a_deletion_of_what_it_has_not_read_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The filer may have the topic from earlier leaders. Few histories notice it: the search begins where one does."""
    deletions = [seed for seed in range(1_000_247, 1_000_747) if Deleting(seed).drawn]

    async def to_be_deleted(self: PeopleService, name: str) -> Topic:
        run = self.desk.loop.topic(name)
        return run.topic or Topic(run.name, "unread", run.wish.spec)

    with monkeypatch.context() as patch:
        patch.setattr(PeopleService, "_to_be_deleted", to_be_deleted)
        caught = next((seed for seed in deletions if loop_history.run(seed)), None)
    assert caught is not None and loop_history.run(caught) is None


# ---- the event loop in virtual time


def in_virtual_time(work: Coroutine[Any, Any, Any], seconds: float = 60) -> tuple[Any, float]:
    """What the coroutine returns, and when."""
    world = World(0)
    loop = VirtualLoop(Process(world, "host", "it"))
    ended: list[float] = []
    task = loop.create_task(work)
    task.add_done_callback(lambda _: ended.append(loop.time()))
    world.run_until(int(seconds * SECOND))
    loop.abandon()
    assert ended, "it has not ended"
    return task.result(), ended[0]


def test_sleep_and_timeouts_take_virtual_time() -> None:
    async def work() -> str:
        await asyncio.sleep(10)
        try:
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        except TimeoutError:
            return "timed out"
        return "never"

    assert in_virtual_time(work()) == ("timed out", 15.0)


def test_blocking_calls_take_turns_with_coroutines() -> None:
    order: list[str] = []

    def block(name: str, microseconds: int) -> str:
        order.append(f"{name} begins")
        Job.current().wait(microseconds)
        answer = Future()
        answer.set(name)
        order.append(f"{name} ends")
        return str(Job.current().wait(answer))

    async def work() -> list[str]:
        loop = asyncio.get_running_loop()
        return list(
            await asyncio.gather(
                loop.run_in_executor(None, block, "a", 2 * SECOND), loop.run_in_executor(None, block, "b", SECOND)
            )
        )

    assert in_virtual_time(work()) == (["a", "b"], 2.0)
    assert order == ["a begins", "b begins", "b ends", "a ends"]


def test_a_process_that_is_killed_leaves_no_thread_behind() -> None:
    world = World(0)
    loop = VirtualLoop(Process(world, "host", "it"))
    ended: list[bool] = []

    def block() -> None:
        try:
            Job.current().wait(SECOND)
        finally:
            ended.append(True)

    loop.run_in_executor(None, block)
    world.run_until(SECOND // 2)
    loop.process.kill()
    world.run_until(2 * SECOND)
    assert not ended
    loop.abandon()
    assert ended
