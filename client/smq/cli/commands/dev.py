"""`smq dev`: runs everything on this machine, in the foreground."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from smq.cli import formatting
from smq.cli.session import CommandFailed, command, say
from smq_core.errors import SmqError
from smq_storage.process.shutdown import stop_signals

if TYPE_CHECKING:
    from smq.cli.dev_cluster import DevCluster


class _Stopped(BaseException):
    """Raised by Ctrl-C, SIGTERM or SIGHUP, even during the start."""


@command
def dev(
    folder: Annotated[
        Path, typer.Option("--dir", help="The folder of the data, which stays after this command.")
    ] = Path(".smq"),
    brokers: Annotated[int, typer.Option(min=1, help="The least number of brokers.")] = 3,
    max_brokers: Annotated[
        int | None, typer.Option(min=1, help="The most brokers that the load may start.", show_default="twice as many")
    ] = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="The address on which the leader listens.")
    ] = "127.0.0.1:7070",
    no_journal: Annotated[
        bool,
        typer.Option(
            "--no-journal", help="Do not keep in the folder what brokers would lose if all were killed at once."
        ),
    ] = False,
) -> None:
    """Run SeaweedFS, a leader and brokers on this machine until Ctrl-C. The data stays for the next time.

    What was acked survives the end of any process, but not a power failure, because nothing waits for the disk.
    """
    from smq.cli.dev_cluster import DevCluster

    broker_limit = 2 * brokers if max_brokers is None else max_brokers
    if broker_limit < brokers:
        raise typer.BadParameter(f"--max-brokers {broker_limit} is below --brokers {brokers}")
    more = ("--no-journal",) if no_journal else ()
    cluster = DevCluster(folder, listen=listen, brokers=brokers, max_brokers=broker_limit, more=more)
    stopping = _StopRequest()
    for number in stop_signals():
        signal.signal(number, stopping.on_signal)
    try:
        cluster.start(_print_progress)
        cluster.wait_ready()
        _print_welcome(cluster, folder)
        _print_decisions(cluster, stopping)
    except _Stopped:
        pass
    finally:
        stopping.requested = True
        say()
        cluster.stop(_print_progress)
    _print_progress(f"stopped; the data is in {folder}")


class _StopRequest:
    """The first signal stops the cluster. Further ones are ignored, because the shutdown must not end half-way.

    A terminal that goes away sends SIGHUP, and so does its shell a moment later.
    """

    def __init__(self) -> None:
        self.requested = False

    def on_signal(self, _: int, __: FrameType | None) -> None:
        if not self.requested:
            self.requested = True
            raise _Stopped


def _print_progress(text: str) -> None:
    say(Text(text, style="dim"))


def _print_welcome(cluster: DevCluster, folder: Path) -> None:
    options = "" if cluster.address == "127.0.0.1:7070" else f"--leader {cluster.address} "
    store = cluster.seaweed.settings()
    lines = [
        ("SeaweedMQ is ready", "bold green"),
        f"  leader     {cluster.address}",
        f"  brokers    {cluster.brokers}, up to {cluster.max_brokers} under load",
        f"  SeaweedFS  {store.url} at {store.endpoint} (S3, no credentials)",
        f"  data       {folder}    logs {folder / 'logs'}",
        f"  page       {cluster.page} (key space, topics, brokers and decisions, live)",
        "",
        ("In another terminal:", "bold"),
        f"  smq {options}apply -f examples/topics/events.yaml",
        f"  echo hello | smq {options}publish events",
        f"  smq {options}consume events --from earliest --max 1",
        f"  smq {options}top",
        "",
        ("Ctrl-C stops everything; the data stays. Decisions of the leader from now on:", "dim"),
    ]
    say()
    for line in lines:
        say(Text(*line) if isinstance(line, tuple) else line)


def _print_decisions(cluster: DevCluster, stopping: _StopRequest) -> None:
    """Prints the leader's decisions until a process ends, or a stop is requested. Raises CommandFailed."""
    import smq

    last = time.time_ns() // 1000
    with smq.connect(cluster.address, timeout=2.0) as client:
        while not stopping.requested:
            time.sleep(0.5)
            if failure := cluster.failure():
                raise CommandFailed(failure)
            try:
                decisions = [d for d in client.admin().decisions() if d.at > last]
            except SmqError:
                continue
            for d in decisions:
                where = f"{formatting.topic(d.topic)}  {', '.join(d.segments)}"
                say(Text.assemble(f"{formatting.clock(d.at)}  ", (d.action, "bold"), f"  {where}: {d.reason}"))
                last = max(last, d.at)
