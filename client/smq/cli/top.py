"""`smq top`: the live picture."""

from __future__ import annotations

import contextlib
import time
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from smq.cli import words
from smq.cli.picture import Rates, Snapshot, draw, snapshot
from smq.cli.session import client, command, end_on_sigterm, leader_address, out
from smq_core.errors import Unavailable

PIPE_WIDTH = 160


@command
def top(
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
    once: Annotated[
        bool, typer.Option("--once", help="Draw one picture and end; so it is without a terminal.")
    ] = False,
) -> None:
    """Live: keyspace, segments, brokers, rates, the leader's last decisions. Ctrl-C ends."""
    end_on_sigterm()
    rates = Rates()
    with client() as connected:
        admin = connected.admin()
        shot = snapshot(admin, time.monotonic())
        rates.update(shot)
        if once or not out.is_terminal:
            # Two looks: a rate needs two counts.
            time.sleep(interval)
            shot = snapshot(admin, time.monotonic())
            rates.update(shot)
            wide = Console(highlight=False, width=None if out.is_terminal else PIPE_WIDTH)
            wide.print(_frame(shot, rates, None))
            return
        with (
            contextlib.suppress(KeyboardInterrupt),
            Live(_frame(shot, rates, None), console=out, screen=True, auto_refresh=False) as live,
        ):
            while True:
                time.sleep(interval)
                trouble = None
                try:
                    shot = snapshot(admin, time.monotonic())
                    rates.update(shot)
                except Unavailable as error:
                    trouble = error.message
                live.update(_frame(shot, rates, trouble), refresh=True)


def _frame(shot: Snapshot, rates: Rates, trouble: str | None) -> Group:
    alive = sum(b.state != "gone" for b in shot.brokers)
    head = Text.assemble(
        ("SeaweedMQ ", "bold"),
        leader_address(),
        f"   {words.plural(len(shot.topics), 'topic')}, {words.plural(alive, 'broker')}   {words.rate(*rates.total())}",
        f"   {time.strftime('%H:%M:%S')}",
    )
    if trouble:
        head.append(f"\n{trouble} (what is below is old)", style="bold red")
    return Group(head, Text(), draw(shot, rates, width=min(out.width - 2, 110)))
