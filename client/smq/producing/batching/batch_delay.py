"""How long a small batch waits, and takes in more messages: many small batches would make a slow broker slower."""

from __future__ import annotations

# Without ``linger``, a small batch is sent at once while fewer than this many other batches have no outcome yet; with
# ``linger``, only while none is without an outcome.
MAX_UNACKED_BATCHES = 4

# A larger batch is worth its own cost and does not wait for outcomes.
SMALL_BATCH_BYTES = 64 << 10

# How old a batch may get by waiting for outcomes, because these may be those of another segment.
MAX_BATCH_DELAY_SECONDS = 0.02

# For every UNACKED_PER_DELAY batches without an outcome the next batch may wait one more delay.
UNACKED_PER_DELAY = 4

# The most delays of one batch. With fewer, thousands of small batches wait at the end of an outage of a minute, and the
# brokers, which have just come back, need minutes for them.
MAX_DELAYS = 10


def remaining_delay(unacked: int, age: float, *, lingers: bool) -> float:
    """How many more seconds a small batch waits for outcomes.

    ``unacked`` batches have no outcome, this one included. It is ``age`` seconds old. ``lingers``: it waited for its
    producer's ``linger`` before.
    """
    if unacked <= (1 if lingers else MAX_UNACKED_BATCHES):
        return 0.0
    delays = min(max(1, unacked // UNACKED_PER_DELAY), MAX_DELAYS)
    return max(0.0, MAX_BATCH_DELAY_SECONDS * delays - age)
