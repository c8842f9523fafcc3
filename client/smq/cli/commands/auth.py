"""`smq auth …`."""

from __future__ import annotations

import shlex
from datetime import timedelta
from typing import Annotated

import typer

from smq.admin.caller_infos import OPEN, AuthorityRotation
from smq.cli.connection.session import TopicName, client, command, out, print_note, security_options
from smq.cli.output.rendering import ListCommand, Output, OutputOption, print_list, print_value
from smq.transport.security.security_files import security_files
from smq_core.errors import InvalidRequest
from smq_core.model.units import format_time, parse_duration

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Who this client is in a secure release, and what it may do."
)


@app.command(cls=ListCommand)
@command
def whoami(output: OutputOption = Output.TABLE) -> None:
    """Show who the leader takes this client for, and how it was recognised."""
    with client() as connected:
        found = connected.admin().whoami()
    if print_value(output, found):
        return
    if found.method == OPEN:
        out.print("nobody: this release is open, and everybody may do everything")
        return
    out.print(found.identity)
    out.print(f"  recognised by  {found.method}")
    if found.groups:
        out.print(f"  groups         {', '.join(found.groups)}")
    if found.expires_at is not None:
        out.print(f"  token ends     {format_time(found.expires_at)}")


@app.command("can-i", cls=ListCommand)
@command
def can_i(
    verb: Annotated[
        str,
        typer.Argument(
            metavar="VERB", help="produce, consume, administer, or get, list, create, update or delete for topics."
        ),
    ],
    topic: Annotated[
        str, typer.Argument(metavar="[TOPIC]", help="A topic; without one all topics of the namespace.")
    ] = "",
    group: Annotated[
        str | None, typer.Option(metavar="GROUP", help="With consume, also whether this consumer group may be used.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say whether this client may do something. Exit code 0 if it may, 1 if not, with what would allow it."""
    with client() as connected:
        found = connected.admin().can_i(verb, topic or None, group=group)
    if not print_value(output, found):
        out.print(("yes" if found.allowed else "no") + (f": {found.reason}" if found.reason else ""))
    if not found.allowed:
        raise typer.Exit(1)


@app.command("token")
@command
def token() -> None:
    """Print the token by which the leader knows this client, for programs that send it themselves: Kafka clients.

    That of a client certificate is signed now, and counts for 15 minutes. It is a secret: pass it on by a pipe.
    """
    files = security_files(**security_options())
    found = files.read_token() if files is not None else ""
    if not found:
        raise InvalidRequest(
            "this client has no token: give --token-file or --cert-file with the roots of the release (--ca-file)"
        )
    print(found)


@app.command("filer-keys", cls=ListCommand)
@command
def filer_keys(
    topic: TopicName,
    duration: Annotated[str, typer.Option(metavar="DURATION", help="How long the keys are good: 15m to 60m.")] = "60m",
    output: OutputOption = Output.TABLE,
) -> None:
    """Get temporary keys that read the files of one topic, for tools that read such files (docs/files.md).

    It prints lines for a shell: `eval "$(smq auth filer-keys flights)"`. They are secrets. The release has to be
    configured for it, and the keys count until they end, even if the right to read is taken away.
    """
    seconds = parse_lifetime(duration)
    with client() as connected:
        found = connected.admin().filer_keys(topic, lifetime=timedelta(seconds=seconds))
    if print_value(output, found):
        return
    print("".join(f"export {name}={shlex.quote(value)}\n" for name, value in found.environment().items()), end="")


def parse_lifetime(text: str) -> int:
    """A duration in seconds. Raises InvalidRequest."""
    try:
        return round(parse_duration(text) / 1_000_000)
    except ValueError as error:
        raise InvalidRequest(f"--duration: {error}") from None


@app.command("ca", cls=ListCommand)
@command
def list_authorities(output: OutputOption = Output.TABLE) -> None:
    """List the authorities that sign the release's certificates, and what a rotation waits for."""
    with client() as connected:
        _print(connected.admin().authorities(), output)


@app.command("rotate-ca", cls=ListCommand)
@command
def rotate_ca(output: OutputOption = Output.TABLE) -> None:
    """Replace the authority that signs the release's certificates, step by step, while everything runs.

    The next one is trusted at once. It signs when all brokers and clients trust it, and the former one is dropped when
    all that it signed has ended. `smq auth ca` shows how far that is.
    """
    with client() as connected:
        _print(connected.admin().rotate_authority(), output)


def _print(found: AuthorityRotation, output: Output) -> None:
    rows = [(it.id, it.phase, format_time(it.since), format_time(it.expires_at)) for it in found.authorities]
    print_list(output, found, ["AUTHORITY", "PHASE", "SINCE", "EXPIRES"], rows)
    if found.waits_for and output in (Output.TABLE, Output.WIDE):
        print_note(f"the introduced authority signs later: it waits for {found.waits_for}")
