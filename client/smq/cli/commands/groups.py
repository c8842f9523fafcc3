"""`smq group …`."""

from __future__ import annotations

from typing import Annotated

import typer

from smq.cli import formatting
from smq.cli.commands.segments import watermarks
from smq.cli.commands.topics import OutputOption
from smq.cli.lag import lag
from smq.cli.rendering import Output, print_json, print_table
from smq.cli.session import client, command

app = typer.Typer(no_args_is_help=True, help="Consumer groups: list.")


@app.command("list")
@command
def list_groups(
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="Only groups of this topic.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List consumer groups, with their members and how many messages they have not committed yet."""
    with client() as connected:
        admin = connected.admin()
        topics = [admin.topic(topic)] if topic else admin.topics()
        found = [(t.name, group) for t in topics for group in admin.groups(t.name)]
        if output is Output.JSON:
            return print_json([{"topic": name, "group": group} for name, group in found])
        ends = watermarks(admin)
        rows = [
            (
                formatting.topic(name),
                group.name,
                str(len(group.members)),
                str(group.generation),
                "unreadable" if group.unreadable else f"{lag(admin.segments(name, all=True), group.positions, ends):,}",
            )
            for name, group in found
        ]
    print_table(["TOPIC", "GROUP", "MEMBERS", "GENERATION", "LAG"], rows, right=["MEMBERS", "GENERATION", "LAG"])
