"""The command tree of `smq`."""

from __future__ import annotations

from typing import Annotated

import typer

from smq.cli.commands import brokers, dev, examples, groups, segments, topics
from smq.cli.commands.compact import compact
from smq.cli.commands.consume import consume
from smq.cli.commands.create import create
from smq.cli.commands.files import files
from smq.cli.commands.publish import publish
from smq.cli.commands.spark import spark
from smq.cli.commands.top import top
from smq.cli.commands.verify import verify
from smq.cli.rendering import ListCommand
from smq.cli.session import out, set_leader

app = typer.Typer(
    name="smq",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="SeaweedMQ: an elastic message queue whose log is Parquet.",
)
app.add_typer(dev.app, name="dev")
app.command()(examples.example)
app.command()(topics.apply)
topics.app.command()(create)
topics.app.command()(verify)
topics.app.command()(compact)
app.add_typer(topics.app, name="topic")
app.add_typer(segments.app, name="segment")
app.command()(publish)
app.command()(consume)
app.command(cls=ListCommand)(files)
app.add_typer(brokers.app, name="broker")
app.add_typer(groups.app, name="group")
app.command()(top)
# Options after the job's name are the job's, --help too.
app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
)(spark)


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version  # imported late, like all that most commands do not need

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
        typer.Option(metavar="HOST:PORT", envvar="SMQ_VIA", help="A broker's relay, for use from outside the cluster."),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            metavar="SECONDS",
            envvar="SMQ_TIMEOUT",
            help="The longest to wait for the leader.",
            show_default="10",
        ),
    ] = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    set_leader(leader, via, timeout)


def main() -> None:
    """The entry point of `smq`."""
    app()
