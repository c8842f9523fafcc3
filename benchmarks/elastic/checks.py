"""The invariants of every run, for any load."""

from __future__ import annotations

from itertools import pairwise

from benchmarks.elastic.record import Event, Record
from smq_core.model.entities import SECOND, TopicSpec
from smq_core.scaling.autoscaler import CROWDED_MERGE_AFTER

SCALING = ("split", "merge")


def scaling(record: Record) -> list[Event]:
    """The splits and merges, in order."""
    return record.changes(*SCALING)


def early_changes(record: Record, spec: TopicSpec) -> list[tuple[Event, Event]]:
    """Pairs of changes of the same part of the ring that came sooner after each other than the policy allows.

    A split may follow anything ``split_after`` later; a merge only ``merge_after`` later, or half a minute when there
    are as many segments as there may be.
    """
    found = []
    crowded = {s.second for s in record.samples if s.segments >= spec.max_segments * 0.9}
    events = scaling(record)
    for partition in sorted({e.range.start for e in events} | {e.range.stop - 1 for e in events}):
        for before, then in pairwise(e for e in events if partition in e.range):
            wait = (spec.merge_after if then.action == "merge" else spec.split_after) / SECOND
            if then.action == "merge" and int(then.second) in crowded:
                wait = min(wait, CROWDED_MERGE_AFTER / SECOND)
            if then.second - before.second < wait - 1:
                found.append((before, then))
    return found


def unevenness(record: Record) -> float:
    """At the end of the run: the fullest segment that can be cut, in units of the mean segment."""
    last = record.samples[-1]
    mean = sum(last.pressures) / len(last.pressures)
    return max((p for p, wide in zip(last.pressures, last.wide, strict=True) if wide), default=0.0) / mean


def stable_since(record: Record) -> float:
    """The second of the last split, merge, move or drain; what rolls or is created does not count."""
    return max((e.second for e in record.events if e.action not in ("roll", "create")), default=0.0)
