"""`smq top`: the live view of the cluster."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group
from rich.text import Text

from smq.cli.broker_states import present
from smq.cli.connection.session import client, command, end_on_sigterm, leader_address, out
from smq.cli.output import formatting
from smq_core.errors import Unavailable

if TYPE_CHECKING:
    from smq.cli.output.dashboard import ClusterSnapshot, SegmentRates

PIPE_WIDTH = 160


@command
def top(
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two updates.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one view and exit, as without a terminal.")] = False,
) -> None:
    """Show keyspace, segments, brokers, rates and the leader's last decisions live. Ctrl-C stops."""
    from rich.live import Live  # imported late, like all that other commands do not need

    from smq.cli.output.dashboard import SegmentRates, take_snapshot

    end_on_sigterm()
    rates = SegmentRates()
    with client() as connected:
        admin = connected.admin()
        snapshot = take_snapshot(admin, time.monotonic())
        rates.update(snapshot)
        if once or not out.is_terminal:
            # Two snapshots, because a rate needs two counts.
            time.sleep(interval)
            snapshot = take_snapshot(admin, time.monotonic())
            rates.update(snapshot)
            console = Console(highlight=False, width=None if out.is_terminal else PIPE_WIDTH)
            console.print(_render_frame(snapshot, rates, None))
            return
        with (
            contextlib.suppress(KeyboardInterrupt),
            Live(_render_frame(snapshot, rates, None), console=out, screen=True, auto_refresh=False) as live,
        ):
            while True:
                time.sleep(interval)
                failure = None
                try:
                    snapshot = take_snapshot(admin, time.monotonic())
                    rates.update(snapshot)
                except Unavailable as error:
                    failure = error.message
                live.update(_render_frame(snapshot, rates, failure), refresh=True)


def _render_frame(snapshot: ClusterSnapshot, rates: SegmentRates, failure: str | None) -> Group:
    from smq.cli.output.dashboard import render

    alive = len(present(snapshot.brokers))
    head = Text.assemble(
        ("SeaweedMQ ", "bold"),
        leader_address(),
        f"   {formatting.plural(len(snapshot.topics), 'topic')}, {formatting.plural(alive, 'broker')}",
        f"   {formatting.rate(*rates.total())}",
        f"   {time.strftime('%H:%M:%S')}",
    )
    if failure:
        head.append(f"\n{failure} (the view below is outdated)", style="bold red")
    return Group(head, Text(), render(snapshot, rates, width=min(out.width - 2, 110)))
