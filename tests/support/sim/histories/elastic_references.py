"""Elastic histories whose producers publish by reference and send large values, beside splits, moves and retention.

The leaders collect both with the operator's own code, by file lists and chunk chains. An upload or a value that a chunk
refers to is never deleted, and in the end none is left that no chunk refers to.
"""

from __future__ import annotations

from support.sim.clients.reader import SimulatedReader
from support.sim.clients.uploads import GRACE, ReferenceScenario
from support.sim.engine.world import MS
from support.sim.histories import elastic
from support.sim.histories.elastic import ElasticHistory
from support.sim.histories.protocol import HistoryFailure
from support.sim.histories.protocol import run as run_history


class ElasticReferenceHistory(ElasticHistory):
    with_references = True

    def make_references(self) -> ReferenceScenario | None:
        """None if the topic is deleted: its uploads go with its data."""
        return None if self.deleting.drawn else ReferenceScenario(self, has_collector=False)

    def recover_uploads(self) -> None:
        """Goes on until all uploads are old. A new reader still reads all messages."""
        references, large_values = self.references, self.large_values
        if references is None or large_values is None:
            return
        self.world.run_until(self.world.now + GRACE)
        self._until(lambda: references.waiting() | large_values.waiting(), 1000 * MS)
        self.readers.append(SimulatedReader(self, "much later", {}, 500 * MS, []))


def run(seed: int) -> HistoryFailure | None:
    """Runs the history of a seed."""
    again = f"python -m support.sim.histories elastic_references {seed}"
    with elastic.shortened_waits():
        return run_history(seed, ElasticReferenceHistory, again)
