"""Runs the same loads on this project's policy and on the peer models, and draws a table and pictures side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from benchmarks.elastic.model import Environment, Model, spec_for
from benchmarks.elastic.peer_models import Pravega, Pulsar, run
from benchmarks.elastic.record import Record, Sample
from benchmarks.elastic.shapes import Shape, after, make

# Seconds without load first, because Pravega does nothing to a segment in its first ten minutes.
REST = 1_800
# The compared loads, and how many seconds of each: what is reached in the end stays.
LONG = {"long-flood": 5_400, "ramp": 3_600, "hot-range": 3_600, "zipf": 3_600}
BROKERS = 8
# Seconds of the picture, where all of it would be too much.
SHOWN = {"hot-range": 1_500}


@dataclass(frozen=True)
class ComparisonRow:
    """One system under one load.

    ``relieved``: seconds from the first in which the topic is above one target to the first in which no segment that
    can be cut is; ``above``: all seconds in which one is. Overload is in target-seconds.
    """

    load: str
    system: str
    relieved: int | None
    above: int
    overload: float
    changes: int
    moves: int
    most: int
    end: int


def shown(name: str) -> tuple[int, int]:
    """Which seconds a picture shows."""
    return REST, REST + SHOWN.get(name, LONG[name])


def records(name: str, seed: int) -> tuple[Shape, list[Record]]:
    """This project, Pravega with a scale factor of 16 and of 2, Pulsar."""
    shape = after(make(name, seed=seed), REST, LONG[name])
    world = Environment(replace(spec_for(shape), roll_bytes=2**50))
    unit = world.fleet.bytes_per_second / world.message_bytes
    return shape, [
        Model(shape, world, seed).run(),
        run("Pravega, scaleFactor 16", Pravega(shape.target, 16), shape),
        run("Pravega, scaleFactor 2", Pravega(shape.target, 2), shape),
        run("Pulsar", Pulsar(shape.target, shape.partitions, BROKERS, unit), shape),
    ]


def line(name: str, shape: Shape, record: Record) -> ComparisonRow:
    """The figures of one record, from the begin of the load on."""
    first = next(s for s in range(REST, shape.seconds) if shape.total(s) > shape.target)
    falls = next((s for s in range(first, shape.seconds) if shape.total(s) <= shape.target), shape.seconds)
    relieved = record.relieved_at(first + 1)
    record_from = [e for e in record.events if e.second >= REST]
    return ComparisonRow(
        load=name,
        system=record.name,
        relieved=relieved - first if relieved is not None and relieved <= falls else None,
        above=sum(s.second > REST and _above(s) for s in record.samples),
        overload=sum(s.overload for s in record.samples if s.second > REST),
        changes=sum(e.action in ("split", "merge") for e in record_from),
        moves=sum(e.action in ("rebalance", "drain") for e in record_from),
        most=max(s.segments for s in record.samples),
        end=record.samples[-1].segments,
    )


def _above(sample: Sample) -> bool:
    return any(p > 1.0 and wide for p, wide in zip(sample.pressures, sample.wide, strict=True))


def lines(seed: int) -> Iterator[tuple[str, list[Record], list[ComparisonRow]]]:
    """Load by load."""
    for name in LONG:
        shape, found = records(name, seed)
        yield name, found, [line(name, shape, record) for record in found]


HEADER = (
    "| load | system | first relief, s | above target, s | overload, target × s | splits and merges | moves | "
    "most segments | at the end |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
)


def row(found: ComparisonRow) -> str:
    """A line of a Markdown table."""
    relieved = "–" if found.relieved is None else f"{found.relieved:,}"
    return (
        f"| {found.load} | {found.system} | {relieved} | {found.above:,} | {found.overload:,.0f} "
        f"| {found.changes} | {found.moves} | {found.most} | {found.end} |"
    )
