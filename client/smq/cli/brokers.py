"""`smq broker …` and `smq group …`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from smq.cli import words
from smq.cli.lag import lag
from smq.cli.segments import DONE_WITHIN, WaitOption, readable_ends
from smq.cli.session import Failed, client, command, out
from smq.cli.tables import Output, print_json, print_table, state
from smq.cli.topics import OutputOption

if TYPE_CHECKING:
    from smq import Admin

brokers_app = typer.Typer(no_args_is_help=True, help="Brokers: list, drain.")
groups_app = typer.Typer(no_args_is_help=True, help="Consumer groups: list.")


@brokers_app.command("list")
@command
def list_brokers(output: OutputOption = Output.TABLE) -> None:
    """The brokers that the leader knows, with what they hold."""
    with client() as connected:
        brokers = connected.admin().brokers()
    if output is Output.JSON:
        return print_json(brokers)
    print_table(
        ["NAME", "STATE", "PRIMARY", "FOLLOWER", "TAIL", "MEMORY", "ADDRESS"],
        [
            (
                b.name,
                state(b.state),
                str(sum(s.primary and s.state != "sealed" for s in b.segments)),
                str(sum(not s.primary and s.state != "sealed" for s in b.segments)),
                words.size(b.tail_bytes),
                words.size(b.memory_limit),
                b.address,
            )
            for b in sorted(brokers, key=lambda b: (b.state == "gone", b.name))
        ],
        right=["PRIMARY", "FOLLOWER", "TAIL", "MEMORY"],
    )


@brokers_app.command()
@command
def drain(broker: Annotated[str, typer.Argument(metavar="BROKER")], wait: WaitOption = True) -> None:
    """Move every segment away from a broker."""
    with client() as connected:
        admin = connected.admin()
        admin.drain(broker)
        if not wait:
            out.print(f"broker {broker}: draining; `smq broker list` shows what it still holds")
            return
        until = time.monotonic() + DONE_WITHIN
        while held := _held(admin, broker):
            if time.monotonic() > until:
                raise Failed(f"{broker} drains, but after {DONE_WITHIN:.0f} s still holds {', '.join(held)}")
            time.sleep(0.1)
    out.print(f"broker {broker}: drained, it holds no segment")


@groups_app.command("list")
@command
def list_groups(
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="Of this topic only.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Consumer groups: members, and how many messages they have not committed yet."""
    with client() as connected:
        admin = connected.admin()
        topics = [admin.topic(topic)] if topic else admin.topics()
        found = [(t.name, group) for t in topics for group in admin.groups(t.name)]
        if output is Output.JSON:
            return print_json([{"topic": name, "group": group} for name, group in found])
        ends = readable_ends(admin)
        rows = [
            (
                words.topic(name),
                group.name,
                str(len(group.members)),
                str(group.generation),
                f"{lag(admin.segments(name, all=True), group.positions, ends):,}",
            )
            for name, group in found
        ]
    print_table(["TOPIC", "GROUP", "MEMBERS", "GENERATION", "LAG"], rows, right=["MEMBERS", "GENERATION", "LAG"])


def _held(admin: Admin, broker: str) -> list[str]:
    return [s.name for t in admin.topics() for s in t.segments if broker in s.brokers]
