"""A picture of an elastic history: the key space over time, the leaders' decisions, and the faults.

``PYTHONPATH=tests python -m simulation.picture SEED out.svg``, from the root of the repository; with ``--loop`` before
the seed it shows the history that runs the leader process's own loop.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from benchmarks.elastic import picture
from benchmarks.elastic.record import Event, Note, Record, Sample, Span
from smq_core.model.entities import Layout, Reason
from smq_core.model.keyspace import KeyRange
from support.sim.checks.elasticity_checker import unchanged_segments
from support.sim.checks.protocol_checker import InvariantViolated
from support.sim.clients.loads import TARGET
from support.sim.engine.world import MS, SECOND
from support.sim.histories.elastic import ElasticHistory, shortened_waits
from support.sim.histories.leader_process import LeaderProcessHistory

EVERY = 0.25
# Seconds over which a segment's load is averaged, because only a few messages arrive per second.
SMOOTH = 1.0


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code. It is 0 also if the history failed, which is drawn up to the failure."""
    *flags, seed, path = arguments
    kind = LeaderProcessHistory if "--loop" in flags else ElasticHistory
    Path(path).write_text(drawn(int(seed), kind), encoding="utf-8")
    return 0


def drawn(seed: int, kind: type[ElasticHistory] = ElasticHistory) -> str:
    """The history of that seed as an SVG."""
    with shortened_waits():
        history = kind(seed)
        census: list[int] = []
        _count_brokers(history, census)
        try:
            history.run()
            end = "all invariants hold"
        except InvariantViolated as broken:
            end = str(broken.violation)
        except Exception as error:  # a failed history is drawn up to the failure
            end = f"{type(error).__name__}: {error}"
    spec, load = history.topic.spec, history.load
    record = record_of(history, census)
    about = (
        f"{spec.durability.value}, {spec.replicas} replicas, {spec.min_segments} to {spec.max_segments} segments, "
        f"{len(history.leader_addresses)} leader(s); target {TARGET:g} messages/s; waits are shorter than real ones"
    )
    return picture.draw(
        record,
        f"seed {seed}, {load.name} for {load.seconds:g} s: {end}",
        about,
        faults=[Note(at / SECOND, words) for at, who, _, words in history.world.story.lines if who == "!"],
        decided=[Note(at / SECOND, f"{who}: {words}") for at, who, words in history.decisions],
    )


def record_of(history: ElasticHistory, census: Sequence[int]) -> Record:
    """Converts the checker's record to a run that can be drawn. ``census`` has the running brokers of each second."""
    checker, seconds = history.checker, history.world.now // SECOND + 1
    record = Record("simulation", history.settings.partitions, TARGET)
    taken: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    accepted: dict[int, int] = defaultdict(int)
    for at, name, rows in checker.taken:
        taken[name][int(at / SECOND / EVERY)] += rows
        accepted[at // SECOND] += rows
    for name, span in _spans(history).items():
        record.spans[name] = span
        first = round((span.opened - EVERY) / EVERY)
        number = max(1, round(((span.closed or seconds) - span.opened + EVERY) / EVERY))
        reach = int(SMOOTH / EVERY / 2)
        span.pressures += [
            sum(taken[name].get(i + x, 0) for x in range(-reach, reach)) / SMOOTH / TARGET
            for i in range(first, first + number)
        ]
    counts = _segments_by_second(checker.layouts, seconds)
    for second in range(seconds):
        here, brokers = counts[second], census[min(second, len(census) - 1)] if census else 0
        offered = history.load.offered(second)
        record.samples.append(Sample(second, offered, accepted[second], 0.0, here, brokers, 0.0))
    for (_, before), (at, after) in pairwise(checker.layouts):
        record.events += _events(before, after, at / SECOND)
    return record


def _spans(history: ElasticHistory) -> dict[str, Span]:
    """Segments from the seals of their predecessors to their own, without those that never opened."""
    checker = history.checker
    first = checker.layouts[0][0] if checker.layouts else 0
    found = {}
    for name, range_ in checker.ranges.items():
        before = checker.predecessors[name]
        if any(p not in checker.sealed_at for p in before):
            continue
        begin = max((checker.sealed_at[p] for p in before), default=first)
        end = checker.sealed_at.get(name)
        if end is None or end > begin:
            found[name] = Span(range_, begin / SECOND + EVERY, end / SECOND if end is not None else None, every=EVERY)
    return found


def _segments_by_second(layouts: Sequence[tuple[int, Layout]], seconds: int) -> list[int]:
    counts, at, known = [], 0, 0
    for second in range(seconds):
        while at < len(layouts) and layouts[at][0] <= second * SECOND:
            known = len(unchanged_segments(layouts[at][1]))
            at += 1
        counts.append(known)
    return counts


def _events(before: Layout, after: Layout, second: float) -> list[Event]:
    """The changes between two layouts."""
    found: dict[tuple[str, KeyRange], int] = {}
    for segment in after.segments:
        if segment.name in before:
            continue
        reason = segment.opened_because
        split = reason is Reason.SPLIT and len(segment.predecessors) == 1
        whole = after.segment(segment.predecessors[0]).range if split else segment.range
        key = (reason.value.lower(), whole)
        found[key] = found.get(key, 0) + 1
    return [Event(second, action, range_, parts, "") for (action, range_), parts in found.items()]


def _count_brokers(history: ElasticHistory, census: list[int]) -> None:
    """Samples once a second, without effect on the history."""
    census.append(sum(b.process.alive for b in history.brokers.values()))
    history.world.after(1000 * MS, lambda: _count_brokers(history, census))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
