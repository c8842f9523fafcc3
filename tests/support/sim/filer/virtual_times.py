"""Times of the simulated stores: those of their objects, and the pauses of those who call them."""

from __future__ import annotations

from datetime import UTC, datetime

from smq_storage.object_store.conditional_writes import RetryPolicy
from support.sim.engine.virtual_asyncio import BlockingCall
from support.sim.engine.world import SECOND, Process


def object_time(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / SECOND, UTC)


def virtual_retry_policy(process: Process, seconds: float) -> RetryPolicy:
    """For blocking calls of a process: it sleeps in virtual time."""
    world = process.world
    return RetryPolicy(
        seconds, wait=lambda s: BlockingCall.current().wait(int(s * SECOND)), clock=lambda: world.now / SECOND
    )
