"""Histories with the leader process's own code in virtual time: its loop, effects, service, groups and fleet.

To repeat one seed: ``PYTHONPATH=tests python -m support.sim.histories leader_process SEED``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from smq_operator.brokers.registry import BrokerRegistry
from support.sim.engine.virtual_asyncio import VirtualLoop
from support.sim.engine.virtual_threads import VirtualThread
from support.sim.engine.world import SECOND, Future, Process, World
from support.sim.histories import leader_process
from support.sim.histories.elastic import shortened_waits
from support.sim.histories.leader_process import LeaderProcessHistory
from support.sim.histories.parallel import failures

pytestmark = pytest.mark.simulation


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_invariants_hold_with_the_real_loop(leader_seeds: range, workers: ProcessPoolExecutor) -> None:
    found = failures(workers, leader_process.run, leader_seeds)
    assert not found, f"{len(found)} of {len(leader_seeds)} histories failed; the first:\n{found[0]}"


def run_history(seed: int) -> LeaderProcessHistory:
    with shortened_waits():
        history = LeaderProcessHistory(seed)
        history.run()
    return history


def test_a_seed_is_one_history() -> None:
    one, two = run_history(1), run_history(1)
    assert one.world.story.lines == two.world.story.lines
    assert one.decisions and any("decision" in words for *_, words in one.world.story.lines)
    one.finish_story()
    two.finish_story()
    assert one.world.story.lines == two.world.story.lines
    shown = [(who.partition(".")[0], words.split()[0]) for _, who, _, words in one.world.story.lines]
    assert shown.index(("leader-0", "PutLayout")) < shown.index(("leader-0", "ReplicaOpened")), "a failure prints this"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_leader_that_takes_unresponsive_for_terminated_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The segments of an unresponsive broker are not given up, because it may be alive."""
    original = BrokerRegistry.apply_termination_proofs

    def check_proofs(self: BrokerRegistry, layouts: Any, now: int) -> Any:
        for broker in self.all():
            if broker.liveness(now).value == "suspect":
                broker.gone = "it is silent"
        return original(self, layouts, now)

    monkeypatch.setattr(BrokerRegistry, "apply_termination_proofs", check_proofs)
    assert any(leader_process.run(seed) for seed in range(60))


# ---- the event loop in virtual time


def in_virtual_time(work: Coroutine[Any, Any, Any], seconds: float = 60) -> tuple[Any, float]:
    """The coroutine's result, and when it returned."""
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
        VirtualThread.current().wait(microseconds)
        answer = Future()
        answer.set(name)
        order.append(f"{name} ends")
        return str(VirtualThread.current().wait(answer))

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
            VirtualThread.current().wait(SECOND)
        finally:
            ended.append(True)

    loop.run_in_executor(None, block)
    world.run_until(SECOND // 2)
    loop.process.kill()
    world.run_until(2 * SECOND)
    assert not ended
    loop.abandon()
    assert ended
