"""Protocol histories whose flush interval stretches, so that tails are long. ``run(seed)`` as elsewhere."""

from __future__ import annotations

import sys
from random import Random

from support.sim.engine.world import SECOND
from support.sim.histories.protocol import History, HistoryFailure
from support.sim.histories.protocol import run as run_history


class QuietHistory(History):
    """The longest interval is drawn apart from all else, so that the rest is as in the protocol history of the seed."""

    def __init__(self, seed: int) -> None:
        self.flush_max_interval = Random(f"flush of {seed}").choice([5, 20, 60]) * SECOND
        super().__init__(seed)


def run(seed: int) -> HistoryFailure | None:
    """Runs the history of a seed."""
    return run_history(seed, QuietHistory, f"PYTHONPATH=tests python -m support.sim.histories.quiet {seed}")


if __name__ == "__main__":
    failure = run(int(sys.argv[1]))
    print(failure or "all invariants hold")
    sys.exit(failure is not None)
