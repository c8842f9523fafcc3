"""The command tree of `smq`."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from smq.cli import brokers, segments, topics
from smq.cli.consume import consume
from smq.cli.dev import dev
from smq.cli.publish import publish
from smq.cli.session import choose_leader, out
from smq.cli.top import top

app = typer.Typer(
    name="smq",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="SeaweedMQ: an elastic message queue whose log is Parquet.",
)
app.command()(dev)
app.command()(topics.apply)
app.add_typer(topics.app, name="topic")
app.add_typer(segments.app, name="segment")
app.command()(publish)
app.command()(consume)
app.add_typer(brokers.brokers_app, name="broker")
app.add_typer(brokers.groups_app, name="group")
app.command()(top)


def _print_version(wanted: bool) -> None:
    if wanted:
        out.print(f"smq {version('seaweedmq')}")
        raise typer.Exit


@app.callback()
def options(
    leader: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            envvar="SMQ_LEADER",
            help="The leader, local or in a cluster.",
            show_default="127.0.0.1:7070",
        ),
    ] = None,
    via: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", envvar="SMQ_VIA", help="A broker's relay, from outside of the cluster."),
    ] = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    choose_leader(leader, via)


def main() -> None:
    """The entry point of `smq`."""
    app()
