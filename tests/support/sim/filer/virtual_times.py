"""Times of the objects of the simulated stores."""

from __future__ import annotations

from datetime import UTC, datetime

from support.sim.engine.world import SECOND


def object_time(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / SECOND, UTC)
