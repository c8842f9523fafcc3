"""Counts requests to the filer with little traffic: what ``flush.maxInterval`` saves, what a leader needs, and what its
merging of small files adds.

``python -m benchmarks.idle_requests`` runs the broker's own flusher and segments, and a whole leader, in virtual
time over a store that counts. Nothing depends on the machine's speed. Every call of the store is one request, except
that a listing is one for each 1,000 objects.

A message in ten seconds can come just after a chunk, or at random. This decides how many chunks an interval of ten
seconds writes, so both are shown.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path

import structlog

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from smq_core.model.entities import SECOND, Micros  # noqa: E402
from smq_operator.cleanup.orphaned_files import collect_orphaned_files  # noqa: E402
from smq_operator.runtime.cleanup_settings import CleanupSettings  # noqa: E402
from support.data.clocks import NOW  # noqa: E402
from support.data.small_chunks import make_topic as make_small_chunks  # noqa: E402
from support.in_memory.brokers import FakeFleet  # noqa: E402
from support.in_memory.leader import FakePlatform, LeaderInMemory, running_leader  # noqa: E402
from support.in_memory.merging_leader import MergingLeader  # noqa: E402
from support.in_memory.quiet_broker import CountingStore, QuietBroker  # noqa: E402
from support.processes.broker import make_topic  # noqa: E402
from support.virtual_time import run_in_virtual_time  # noqa: E402

SEGMENTS = 100
# This number of segments is run, and their requests are scaled: segments do not depend on each other.
SIMULATED = 10
INTERVAL, MAX_INTERVAL = 10 * SECOND, 120 * SECOND
LEADER_SECONDS = 590
# A quiet segment is sealed at the age ``roll.age``, and merged then.
ROLL_HOURS = 24
# Five times that of a broker, which changes when a chunk is written by half a second at most.
STEP = SECOND // 2

# The seconds from one message of a segment to its next.
Arrivals = Callable[[random.Random], Iterator[float]]

ARRIVALS: dict[str, Arrivals] = {
    "each just after a chunk (10.2 s)": lambda _: repeat(10.2),
    "at random (10 s on average)": lambda dice: (dice.expovariate(0.1) for _ in repeat(None)),
}


def brokers_requests(max_interval: Micros | None, arrivals: Arrivals, seconds: int) -> Counter[str]:
    """The requests of ``SEGMENTS`` primaries per hour, by method of the store."""
    broker = QuietBroker(make_topic(flush_interval=INTERVAL, flush_max_interval=max_interval), SIMULATED)
    dice = random.Random(0)
    gaps = [arrivals(dice) for _ in broker.segments]
    due = [dice.uniform(0, 10) for _ in broker.segments]
    for step in range(seconds * SECOND // STEP):
        now = step * STEP / SECOND
        for number, hosted in enumerate(broker.segments):
            while due[number] <= now:
                broker.append(hosted)
                due[number] += next(gaps[number])
        broker.advance(STEP / SECOND, poll=STEP)
    return Counter(
        {name: round(count * 3600 / seconds * SEGMENTS / SIMULATED) for name, count in broker.store.calls.items()}
    )


def leaders_requests(topics: int) -> Counter[str]:
    """The requests of a leader per hour, with ``topics`` at rest, by method of the store."""

    async def run() -> Counter[str]:
        platform, store = FakePlatform(), CountingStore()
        for number in range(topics):
            platform.add_topic(f"default/t{number}", min_segments=1)
        fleet = FakeFleet(store.store)
        for number in range(3):
            fleet.add(f"b{number}")
        leader = LeaderInMemory(platform, fleet, store, cleanup=CleanupSettings())  # type: ignore[arg-type]
        async with running_leader(leader, report_seconds=1.0):
            await asyncio.sleep(5)
            store.calls.clear()
            await asyncio.sleep(LEADER_SECONDS)
            return Counter({name: round(count * 3600 / LEADER_SECONDS) for name, count in store.calls.items()})

    return run_in_virtual_time(run())


def merge_requests(chunks: int) -> Counter[str]:
    """The requests that merge one sealed segment of ``chunks`` small chunks, by method of the store.

    Also those that read the next file list, and delete the former one.
    """

    async def run() -> Counter[str]:
        store = CountingStore()
        topic = make_small_chunks(store.store, chunks=chunks)
        leader = MergingLeader(store, topic)
        leader.read_file_lists()
        store.calls.clear()
        while leader.merger.waiting(leader.managed):
            await leader.merge()
        leader.read_file_lists()
        merging = Counter(store.calls)
        for sign in (1, -1):  # without what the collection needs anyway
            store.calls.clear()
            collect_orphaned_files(store, topic, NOW)  # type: ignore[arg-type]
            merging.update({name: sign * count for name, count in store.calls.items()})
        return Counter({name: count for name, count in merging.items() if count})

    return run_in_virtual_time(run())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=3600, help="virtual seconds of each load (default: 3600)")
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    print(f"{SEGMENTS} segments, Replicated, a message in 10 s each; requests per hour")
    for name, arrivals in ARRIVALS.items():
        before = brokers_requests(None, arrivals, given.seconds)
        after = brokers_requests(MAX_INTERVAL, arrivals, given.seconds)
        print(f"{name}\n  before {dict(before)}\n  after  {dict(after)}")
        print(f"  PUTs: 1/{before['put_new'] / after['put_new']:.1f}")
        for when, requests in (("before", before), ("after", after)):
            chunks = requests["put_new"] * ROLL_HOURS // SEGMENTS
            merging = merge_requests(chunks)
            per_hour = {method: round(count * SEGMENTS / ROLL_HOURS, 1) for method, count in merging.items()}
            print(f"  merging {when}: {per_hour}; of each segment with {chunks} chunks {dict(merging)}")
    none, some = leaders_requests(0), leaders_requests(4)
    print(f"leader without topics: {dict(none)}\nleader with 4 topics at rest: {dict(some)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
