"""`smq auth …`."""

from __future__ import annotations

from typing import Annotated

import typer

from smq.admin.caller_infos import OPEN, AuthorityRotation
from smq.cli.connection.session import client, command, out, print_note
from smq.cli.output.formatting import iso
from smq.cli.output.rendering import ListCommand, Output, OutputOption, print_list, print_value

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
        out.print(f"  token ends     {iso(found.expires_at)}")


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
    rows = [(it.id, it.phase, iso(it.since), iso(it.expires_at)) for it in found.authorities]
    print_list(output, found, ["AUTHORITY", "PHASE", "SINCE", "EXPIRES"], rows)
    if found.waits_for and output in (Output.TABLE, Output.WIDE):
        print_note(f"the introduced authority signs later: it waits for {found.waits_for}")
