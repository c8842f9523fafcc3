"""The operator's own garbage collection of uploads, which runs beside retention."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from smq_core.errors import SmqError
from smq_operator.cleanup.unreferenced_uploads import collect_unreferenced_uploads
from support.sim.clients.uploads import GRACE
from support.sim.engine.world import SECOND, Steps

if TYPE_CHECKING:
    from support.sim.leaders.elastic_leader import ElasticLeader

CHECK_EVERY = 3 * SECOND


def keep(leader: ElasticLeader) -> Steps:
    """Collects them periodically while this leader runs."""
    world, references = leader.world, leader.history.references
    assert references is not None
    while True:
        yield world.between(CHECK_EVERY * 3 // 4, CHECK_EVERY * 5 // 4)
        try:
            before = (yield from leader.retainer.clocks()).earliest - GRACE
            count = yield leader.retainer.do(
                collect_unreferenced_uploads,
                leader.machine.topic,
                datetime.fromtimestamp(before / SECOND, UTC),
                dict(leader.written),
            )
        except SmqError as error:
            world.note(leader.process.name, "", f"the collection of uploads is deferred: {error.message}")
            continue
        if count:
            world.note(leader.process.name, "", f"{count} uploads are deleted")
            references.collected += count
