"""The command tree of `smq`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import typer

from smq.cli.command_loader import CommandGroup
from smq.cli.connection.session import out, set_leader
from smq.cli.value_checks import defer_checks

# The options before the command, which people write after it.
_VALUES = {"--leader": "HOST:PORT", "--via": "HOST:PORT", "--ca-file": "FILE", "--token-file": "FILE"}


class RootGroup(CommandGroup):
    """What `smq` offers, in the order of its help."""

    targets: ClassVar[Mapping[str, str]] = {
        "dev": "smq.cli.commands.dev:app",
        "example": "smq.cli.commands.examples:example",
        "apply": "smq.cli.commands.topic_changes:apply",
        "diff": "smq.cli.commands.topic_changes:diff",
        "topic": "smq.cli.commands.topics:app",
        "segment": "smq.cli.commands.segments:app",
        "publish": "smq.cli.commands.publish:publish",
        "consume": "smq.cli.commands.consume:app",
        "files": "smq.cli.commands.files:app",
        "broker": "smq.cli.commands.brokers:app",
        "group": "smq.cli.commands.groups:app",
        "auth": "smq.cli.commands.auth:app",
        "top": "smq.cli.commands.top:top",
        "spark": "smq.cli.commands.spark:app",
    }

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:  # typer exports no class for an unknown option
            option = getattr(error, "option_name", None)
            if option in _VALUES:
                error.message += f". Write it before the command: smq {option} {_VALUES[option]} …"  # type: ignore[attr-defined]
            raise


app = typer.Typer(
    name="smq",
    cls=RootGroup,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="SeaweedMQ: an elastic message queue whose log is Parquet.\n\n"
    "Exit codes: 0 done; 1 refused or failed, with a message on stderr; 2 the command line is wrong; 130 Ctrl-C; 143 "
    "SIGTERM. `smq diff` ends with 1 if something differs, and with 2 if it fails.",
)


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
    ca_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            envvar="SMQ_CA_FILE",
            help="The roots of a secure release, in PEM: all connections are encrypted.",
            show_default="those of `smq dev --secure`, if it runs on .smq",
        ),
    ] = None,
    token_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            envvar="SMQ_TOKEN_FILE",
            help="The file with the token by which a secure release knows who you are.",
            show_default="the administrator's of `smq dev --secure`",
        ),
    ] = None,
    cert_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            envvar="SMQ_CERT_FILE",
            help="A client certificate in place of the token, in PEM, with what is between it and its root.",
        ),
    ] = None,
    key_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            envvar="SMQ_KEY_FILE",
            help="The private key of the certificate, in PEM.",
            show_default="the certificate's file has it, too",
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            metavar="SECONDS",
            envvar="SMQ_TIMEOUT",
            help="The longest to wait for the leader, and for a filer that does not answer.",
            show_default="10",
        ),
    ] = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    given = {"ca_file": ca_file, "token_file": token_file, "cert_file": cert_file, "key_file": key_file}
    security: Any = {name: value for name, value in given.items() if value}
    set_leader(leader, via, timeout, security)


def main() -> None:
    """The entry point of `smq`."""
    defer_checks()
    app()
