"""``make bench``: measures SeaweedMQ and its peers on this machine, and compares ratios within the run.

    python -m benchmarks.run                         everything, three runs each: an hour or more
    python -m benchmarks.run --quick                 everything, but shorter: a few minutes
    python -m benchmarks.run --only write-1k --no-peers
    python -m benchmarks.run --list
    python -m benchmarks.run --show benchmarks/results/….jsonl

Each case of SeaweedMQ gets a fresh cluster, and its runs alternate with the peers' runs. A peer that cannot run here is
skipped with the reason. If a target is missed, the case runs once more under a profiler.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.cases.throughput import CASES
from benchmarks.harness.child_process import ROOT, LoadFailed, LoadProcess
from benchmarks.harness.cluster import BenchmarkCluster
from benchmarks.harness.meter import wait_until_quiet
from benchmarks.harness.profiler import Profiler
from benchmarks.harness.tools import ToolMissing
from benchmarks.model import OURS, Case, Measurement, Scale
from benchmarks.peers.kafka import Kafka
from benchmarks.peers.weed_queue import WeedQueue
from benchmarks.report import Results, markdown, read, short, show

WORK = ROOT / "build" / "bench"
WARM_UP_GB = 6.0
console = Console(width=None if sys.stdout.isatty() else 180, soft_wrap=True)


class Peers:
    """Started when first needed, kept running until the end, asked no more once it has failed."""

    def __init__(self, scale: Scale, wanted: bool) -> None:
        self._scale = scale
        self._running: dict[str, Any] = {}
        self._absent: set[str] = set() if wanted else {"kafka", "weed mq"}
        self._stack = ExitStack()

    def __enter__(self) -> Peers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def get(self, name: str) -> tuple[bool, Any]:
        """Whether that peer runs, and the peer."""
        family = "kafka" if name.startswith("kafka") else name
        if family == "relay":
            return True, None
        if family in self._absent:
            return False, None
        if family not in self._running:
            try:
                self._running[family] = self._start(family)
            except (ToolMissing, TimeoutError, RuntimeError, LoadFailed) as error:
                console.print(f"[yellow]skipped: {family}: {error}")
                self._absent.add(family)
                return False, None
        return True, self._running[family]

    def _start(self, family: str) -> Kafka | WeedQueue:
        console.print(f"starting {family}", style="dim")
        if family == "weed mq":
            return self._stack.enter_context(WeedQueue(WORK / "weed-mq"))
        kafka = self._stack.enter_context(Kafka(WORK / "kafka"))
        console.print("warming Kafka up", style="dim")
        kafka.warm_up(0.3 if self._scale.quick else WARM_UP_GB)
        return kafka


@dataclass(frozen=True, slots=True)
class RunOptions:
    """``quiet_timeout``: seconds to wait before each run for a quiet machine. ``again``: repetitions of a noisy run."""

    scale: Scale
    runs: int
    profile: bool
    quiet_timeout: float
    again: int
    journal: bool
    secure: bool


def measure(case: Case, options: RunOptions, peers: Peers, results: Results) -> None:
    """All runs of one case, ours and the peers' in turn; a peer that failed is not asked again."""
    console.print(f"\n[bold]{case.name}[/bold]: {case.about}")
    scale = options.scale
    failed: set[str] = set()
    with cluster_of(case, options) as cluster:
        for run in range(1, (1 if case.once else options.runs) + 1):
            keep(results, case, OURS, run, partial(case.ours, cluster, scale), options)
            for name, function in case.peers.items():
                there, peer = peers.get(name) if name not in failed else (False, None)
                if there and not keep(results, case, name, run, partial(function, peer, scale), options):
                    failed.add(name)
        misses = results.misses(case)
        if misses and options.profile:
            console.print(f"missed: {', '.join(misses)}; once more under a profiler:")
            profiler = Profiler(lambda: cluster.broker_pids() | LoadProcess.living("benchmarks.loads.clients"))
            with profiler, contextlib.suppress(LoadFailed, TimeoutError, AssertionError):
                case.ours(cluster, scale)
            console.print(profiler.report, markup=False)
            results.path.with_suffix(f".{case.name}.profile.txt").write_text(profiler.report + "\n")


def cluster_of(case: Case, options: RunOptions) -> BenchmarkCluster:
    secure = options.secure or case.cluster.secure
    return BenchmarkCluster(WORK / "smq", replace(case.cluster, journal=options.journal, secure=secure))


def keep(
    results: Results, case: Case, who: str, run: int, function: Callable[[], Measurement], options: RunOptions
) -> bool:
    """One run, repeated while it is noisy. False: it failed, which is shown, and the next thing goes on."""
    for _ in range(1 + options.again):
        wait_until_quiet(options.quiet_timeout)
        start = time.monotonic()
        try:
            row = function()
        except (LoadFailed, TimeoutError, AssertionError) as error:
            console.print(f"  {who:<11} run {run} [red]failed[/red] after {time.monotonic() - start:.0f} s: {error}")
            return False
        row.case, row.who, row.run = case.name, who, run
        results.add(row)
        console.print(f"  {who:<11} {print_row(case, row)}")
        if not row.noisy:
            break
    return True


def print_row(case: Case, row: Measurement) -> str:
    """The row on one line."""
    figures = [f"{f.label} {short(row.figures[f.key])}" for f in case.figures if f.key in row.figures]
    spent = [f"{name.removesuffix('_cpu_s')} {row.meter[name]:.1f}" for name in row.meter if name.endswith("_cpu_s")]
    noise = f"  [yellow]noisy: {row.meter['other_cores']}" if row.noisy else ""
    return f"{'  '.join(figures)}   CPU s: {', '.join(spent)}{noise}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="CASE", help="this case; may be repeated")
    parser.add_argument("--runs", type=int, default=None, help="of each case and peer; the median counts (3)")
    parser.add_argument("--quick", action="store_true", help="small sizes, one run")
    parser.add_argument("--no-peers", action="store_true", help="neither Kafka nor SeaweedFS' queue")
    parser.add_argument("--no-profile", action="store_true", help="no second look at what missed its target")
    parser.add_argument(
        "--quiet-timeout", type=float, default=20, help="seconds to wait for quiet before each run (20)"
    )
    parser.add_argument("--again", type=int, default=1, help="how often a noisy run is repeated (1)")
    parser.add_argument("--no-journal", action="store_true", help="brokers without journals, to compare")
    parser.add_argument("--secure", action="store_true", help="a release with security, to compare")
    parser.add_argument("--list", action="store_true", help="name the cases and stop")
    parser.add_argument("--show", type=Path, metavar="FILE", help="print the table of an earlier run and stop")
    parser.add_argument("--markdown", action="store_true", help="with --show: as Markdown")
    args = parser.parse_args(arguments)
    if args.list:
        for case in CASES:
            console.print(f"{case.name:<14} {case.about}")
        return 0
    unknown = set(args.only) - {case.name for case in CASES}
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}; --list names them")
    chosen = [case for case in CASES if not args.only or case.name in args.only]
    results = Results()
    if args.show:
        results.path, results.rows = args.show, read(args.show)
        if args.markdown:
            print(markdown(results, chosen))
        else:
            show(results, chosen, console)
        return 0
    runs = args.runs or (1 if args.quick else 3)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exit by exception ends what was started
    options = RunOptions(
        scale=Scale(args.quick),
        runs=runs,
        profile=not args.no_profile,
        quiet_timeout=args.quiet_timeout,
        again=args.again,
        journal=not args.no_journal,
        secure=args.secure,
    )
    with ExitStack() as ends, Peers(options.scale, not args.no_peers) as peers:
        ends.callback(LoadProcess.kill_all)
        for case in chosen:
            try:
                measure(case, options, peers, results)
            except (TimeoutError, RuntimeError) as error:
                console.print(f"  [red]not measured[/red]: {error}")
    show(results, chosen, console)
    missed = {case.name: misses for case in chosen if (misses := results.misses(case))}
    for name, labels in missed.items():
        console.print(f"missed: {name}: {', '.join(labels)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
