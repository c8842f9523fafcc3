"""`smq broker …`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from smq.cli.commands.segments import DONE_TIMEOUT_SECONDS, WaitOption
from smq.cli.rendering import ListCommand, Output, OutputOption, print_list, state
from smq.cli.session import CommandFailed, client, command, out
from smq_core.model.units import format_size

if TYPE_CHECKING:
    from smq import Admin

app = typer.Typer(no_args_is_help=True, help="Brokers: list, drain.")


@app.command("list", cls=ListCommand)
@command
def list_brokers(output: OutputOption = Output.TABLE) -> None:
    """List the brokers, with their segments and memory."""
    with client() as connected:
        brokers = connected.admin().brokers()
    print_list(
        output,
        brokers,
        ["NAME", "STATE", "PRIMARY", "FOLLOWER", "TAIL", "MEMORY", "ADDRESS", "INCARNATION"],
        [
            (
                b.name,
                state(b.state),
                str(sum(s.primary and s.state != "sealed" for s in b.segments)),
                str(sum(not s.primary and s.state != "sealed" for s in b.segments)),
                format_size(b.tail_bytes),
                format_size(b.memory_limit),
                b.address,
                b.incarnation,
            )
            for b in sorted(brokers, key=lambda b: (b.state == "gone", b.name))
        ],
        right=["PRIMARY", "FOLLOWER", "TAIL", "MEMORY"],
        wide=["INCARNATION"],
    )


@app.command()
@command
def drain(broker: Annotated[str, typer.Argument(metavar="BROKER")], wait: WaitOption = True) -> None:
    """Move every segment away from a broker."""
    with client() as connected:
        admin = connected.admin()
        admin.drain(broker)
        if not wait:
            out.print(f"broker {broker}: draining; `smq broker list` shows what it still hosts")
            return
        deadline = time.monotonic() + DONE_TIMEOUT_SECONDS
        while remaining := _segments_on(admin, broker):
            if time.monotonic() > deadline:
                raise CommandFailed(
                    f"{broker} drains, but after {DONE_TIMEOUT_SECONDS:.0f} s it still hosts {', '.join(remaining)}"
                )
            time.sleep(0.1)
    out.print(f"broker {broker}: drained; it hosts no segments")


def _segments_on(admin: Admin, broker: str) -> list[str]:
    return [s.name for t in admin.topics() for s in t.segments if broker in s.brokers]
