"""`smq dev`: everything on this machine, in the foreground."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from smq.cli import words
from smq.cli.session import Failed, command, out
from smq_core.errors import SmqError

if TYPE_CHECKING:
    from smq.cli.local import LocalCluster


class _Stopped(BaseException):
    """Ctrl-C or SIGTERM, also in the middle of starting."""


@command
def dev(
    folder: Annotated[Path, typer.Option("--dir", help="Where the data lives; it outlives this command.")] = Path(
        ".smq"
    ),
    brokers: Annotated[int, typer.Option(min=1, help="How many brokers there are at least.")] = 3,
    max_brokers: Annotated[
        int | None, typer.Option(min=1, help="As many as the load may ask for.", show_default="twice as many")
    ] = None,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where the leader listens.")] = "127.0.0.1:7070",
) -> None:
    """Run SeaweedFS, a leader and brokers on this machine until Ctrl-C. The data stays for the next time."""
    from smq.cli.local import LocalCluster

    most = 2 * brokers if max_brokers is None else max_brokers
    if most < brokers:
        raise typer.BadParameter(f"--max-brokers {most} is below --brokers {brokers}")
    cluster = LocalCluster(folder, listen=listen, brokers=brokers, max_brokers=most)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        cluster.start(_say)
        cluster.wait_ready()
        _welcome(cluster, folder)
        _follow(cluster)
    except _Stopped:
        out.print()
    finally:
        # From here on it ends; an impatient second Ctrl-C must not leave anything behind.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        cluster.stop(_say)
    _say(f"stopped; the data is in {folder}")


def _stop(_: int, __: FrameType | None) -> None:
    raise _Stopped


def _say(text: str) -> None:
    out.print(Text(text, style="dim"))


def _welcome(cluster: LocalCluster, folder: Path) -> None:
    options = "" if cluster.address == "127.0.0.1:7070" else f"--leader {cluster.address} "
    store = cluster.seaweed.settings()
    lines = [
        ("SeaweedMQ is ready", "bold green"),
        f"  leader     {cluster.address}",
        f"  brokers    {cluster.brokers}, up to {cluster.max_brokers} as the load wants",
        f"  SeaweedFS  {store.url} at {store.endpoint} (S3, no credentials)",
        f"  data       {folder}    logs {folder / 'logs'}",
        "",
        ("In another terminal:", "bold"),
        f"  smq {options}apply -f examples/topics/events.yaml",
        f"  echo hello | smq {options}publish events",
        f"  smq {options}consume events --from earliest --max 1",
        f"  smq {options}top",
        "",
        ("Ctrl-C stops everything; the data stays. What the leader decides from here on:", "dim"),
    ]
    out.print()
    for line in lines:
        out.print(Text(*line) if isinstance(line, tuple) else line)


def _follow(cluster: LocalCluster) -> None:
    """Prints the leader's decisions until something ends. Raises Failed."""
    import smq

    last = time.time_ns() // 1000
    with smq.connect(cluster.address, timeout=2.0) as client:
        while True:
            time.sleep(0.5)
            if trouble := cluster.trouble():
                raise Failed(trouble)
            try:
                news = [d for d in client.admin().decisions() if d.at > last]
            except SmqError:
                continue
            for d in news:
                where = f"{words.topic(d.topic)}  {', '.join(d.segments)}"
                out.print(Text.assemble(f"{words.clock(d.at)}  ", (d.action, "bold"), f"  {where}: {d.reason}"))
                last = max(last, d.at)
