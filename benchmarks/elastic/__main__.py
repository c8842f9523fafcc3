"""Elasticity in virtual time: runs and draws a load shape, compares systems, and measures decision times."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.elastic import compare, decision_time, picture
from benchmarks.elastic.checks import early_changes, stable_since, unevenness
from benchmarks.elastic.model import Environment, Model, environment_for
from benchmarks.elastic.record import Record
from benchmarks.elastic.shapes import SHAPES, Shape, make
from smq_core.model.entities import SECOND


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.elastic", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run", help="run a shape and print what happened")
    draw = verbs.add_parser("picture", help="run a shape and draw it")
    for verb in (run, draw):
        verb.add_argument(
            "--shape", choices=SHAPES, required=True, help="; ".join(f"{n}: {s[0]}" for n, s in SHAPES.items())
        )
        verb.add_argument("--seed", type=int, default=7)
        verb.add_argument("--seconds", type=int, default=None, help="how long (default: as long as the shape asks)")
        verb.add_argument("--target", type=float, default=50_000.0, help="messages/s that a segment shall carry")
        verb.add_argument("--seal", type=float, default=0.3, help="seconds that a seal takes")
        verb.add_argument("--broker-start", type=float, default=20.0, help="seconds until a new broker is there")
    draw.add_argument("--out", type=Path, required=True)
    peers = verbs.add_parser("compare", help="the same loads on models of Pravega's and Pulsar's policies")
    peers.add_argument("--seed", type=int, default=7)
    peers.add_argument("--pictures", type=Path, default=None, help="a folder for pictures side by side")
    measure = verbs.add_parser("rounds", help="how long one decision round takes")
    measure.add_argument("--profile", action="store_true")
    chosen = parser.parse_args(arguments)
    match chosen.verb:
        case "run":
            _print(*_run(chosen))
        case "picture":
            shape, world, record = _run(chosen)
            chosen.out.write_text(_drawn(shape, world, record), encoding="utf-8")
        case "compare":
            _compare(chosen.seed, chosen.pictures)
        case "rounds":
            for row in decision_time.rows(chosen.profile):
                print(f"{row.name:58} best {row.best_ms:7.1f} ms, CPU {row.cpu_ms:6.1f} ms: {row.outcome}", flush=True)
    return 0


def _run(chosen: argparse.Namespace) -> tuple[Shape, Environment, Record]:
    shape = make(chosen.shape, target=chosen.target, seed=chosen.seed)
    world = environment_for(shape, seal=int(chosen.seal * SECOND), broker_start=int(chosen.broker_start * SECOND))
    return shape, world, Model(shape, world, chosen.seed).run(chosen.seconds)


def _drawn(shape: Shape, world: Environment, record: Record) -> str:
    behind = max(s.behind / s.offered for s in record.samples if s.offered)
    return picture.draw(
        record,
        f"{shape.name}: {shape.about}",
        f"splits: {len(record.changes('split'))}, merges: {len(record.changes('merge'))}; producers at most "
        f"{behind:.1f} s behind; target {shape.target:,.0f} messages/s per segment, "
        f"seals of {world.seal / SECOND:g} s, brokers start in {world.broker_start / SECOND:g} s",
    )


def _print(shape: Shape, world: Environment, record: Record) -> None:
    for event in record.events:
        print(f"{event.second:9.1f}  {event.action:10} {event.range!s:16} {event.reason}")
    for sample in record.samples[:: max(1, len(record.samples) // 30)]:
        print(
            f"{sample.second:9}  offered {sample.offered / shape.target:6.2f}"
            f"  taken in {sample.accepted / shape.target:6.2f}"
            f"  behind {sample.behind / max(sample.offered, 1):6.2f} s  segments {sample.segments:4}"
            f"  brokers {sample.brokers:3}  fullest segment {max(sample.pressures):.2f}"
            f"  fullest broker {max(sample.broker_loads):.2f}"
        )
    first = shape.first_over_target()
    relieved = record.relieved_at(first + 1) if first is not None else None
    print(f"\nabove one target from second {first}, no segment above it from {relieved}")
    print(f"overload {record.overload():.0f} target-seconds, last change at {stable_since(record):.0f} s")
    print(
        f"fullest segment that can be cut: {unevenness(record):.2f} times the mean; "
        f"hot partitions: {record.hot or 'none'}"
    )
    print(f"changes sooner than the policy allows: {len(early_changes(record, world.spec))}")


def _compare(seed: int, pictures: Path | None) -> None:
    print(compare.HEADER)
    for name, records, found in compare.lines(seed):
        for line in found:
            print(compare.row(line), flush=True)
        if pictures is not None:
            shown = [records[0], records[1], records[3]]
            drawn = picture.side_by_side(shown, name, SHAPES[name][0], *compare.shown(name))
            (pictures / f"elastic-beside-{name}.svg").write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
