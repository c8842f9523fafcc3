"""Protocol histories whose producers publish by reference, among streamed batches, and a collector of uploads."""

from __future__ import annotations

from support.sim.clients.reader import SimulatedReader
from support.sim.clients.uploads import GRACE
from support.sim.engine.world import MS
from support.sim.histories import protocol
from support.sim.histories.protocol import History, HistoryFailure


class ReferenceHistory(History):
    """Some go on until the uploads are old, and a new reader still reads all messages."""

    with_references = True

    def play(self) -> None:
        super().play()
        assert self.references is not None
        if self.references.dice.random() < 0.25:
            self.world.run_until(self.world.now + GRACE)
            self.readers.append(SimulatedReader(self, "late", {}, 200 * MS, []))
            self.finish()


def run(seed: int) -> HistoryFailure | None:
    """Runs the history of a seed."""
    return protocol.run(seed, ReferenceHistory, f"python -m support.sim.histories references {seed}")
