"""`smq broker …`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from smq.cli.broker_shortage import warn_of_drain
from smq.cli.broker_states import by_name, explanations, last_end
from smq.cli.connection.filer_watch import filer_problem_of_leader
from smq.cli.connection.session import client, command, out, print_note
from smq.cli.connection.waiting import DONE_TIMEOUT_SECONDS, WaitOption, WaitTimeout, wait_until
from smq.cli.filer_outage import filer_notice
from smq.cli.output.rendering import ListCommand, Output, OutputOption, print_list, state
from smq_core.model.units import format_size

if TYPE_CHECKING:
    from smq import Admin, Client

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Brokers: list, drain, undrain.")


@app.command("list", cls=ListCommand)
@command
def list_brokers(
    former: Annotated[
        bool, typer.Option("--all", help="A line for each process, former ones too, as in JSON and YAML.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the brokers, with their segments and memory, and why the last process of each ended."""
    with client() as connected:
        brokers, problems = connected.admin().brokers(), connected.admin().problems()
    processes = by_name(brokers)
    shown = [b for found in processes.values() for b in (found if former else found[:1])]
    now = datetime.now(UTC)
    print_list(
        output,
        brokers,
        ["NAME", "STATE", "PRIMARY", "FOLLOWER", "TAIL", "MEMORY", "ADDRESS", "LAST END", "INCARNATION"],
        [
            (
                b.name,
                state(b.state),
                str(sum(s.primary and s.state != "sealed" for s in b.segments)),
                str(sum(not s.primary and s.state != "sealed" for s in b.segments)),
                format_size(b.tail_bytes),
                format_size(b.memory_limit),
                b.address,
                last_end([b] if former else processes[b.name], now),
                b.incarnation,
            )
            for b in shown
        ],
        right=["PRIMARY", "FOLLOWER", "TAIL", "MEMORY"],
        wide=["INCARNATION"],
    )
    if output in (Output.TABLE, Output.WIDE):
        if notice := filer_notice(problems):
            print_note(notice)
        for line in explanations(shown):
            print_note(line)


BrokerName = Annotated[str, typer.Argument(metavar="BROKER")]


@app.command()
@command
def drain(broker: BrokerName, wait: WaitOption = True, timeout: WaitTimeout = DONE_TIMEOUT_SECONDS) -> None:
    """Move every segment away from a broker. `smq broker undrain` brings it back."""
    with client(within=timeout) as connected:
        admin = connected.admin()
        warn_of_drain(admin, broker)
        admin.drain(broker)
        if not wait:
            out.print(f"broker {broker}: draining; `smq broker list` shows what it still hosts")
            return
        wait_until(
            lambda: None if _segments_on(admin, broker) else True,
            f"the segments of {broker} to move to other brokers",
            timeout,
            lambda: (
                f"{broker} drains, but after {timeout:.0f} s it still hosts {', '.join(_segments_on(admin, broker))}"
                + _because_of_the_filer(connected)
            ),
        )
    out.print(f"broker {broker}: drained; it hosts no segments")


@app.command()
@command
def undrain(broker: BrokerName, wait: WaitOption = True, timeout: WaitTimeout = DONE_TIMEOUT_SECONDS) -> None:
    """Bring a drained broker of `smq dev` back: its process is replaced by a new one, which takes segments again.

    On Kubernetes delete the Pod of the broker: its Deployment starts a new one.
    """
    with client(within=timeout) as connected:
        admin = connected.admin()
        admin.undrain(broker)
        if not wait:
            out.print(f"broker {broker}: restarting; `smq broker list` shows when it is alive")
            return
        wait_until(
            lambda: True if _is_alive(admin, broker) else None,
            f"a new process of {broker}",
            timeout,
            lambda: f"{broker} has no new process after {timeout:.0f} s; see its log, and `smq broker list`",
        )
    out.print(f"broker {broker}: alive; it takes segments again")


def _is_alive(admin: Admin, broker: str) -> bool:
    return any(b.name == broker and b.state == "alive" for b in admin.brokers())


def _because_of_the_filer(connected: Client) -> str:
    """Segments move only while the filer answers, because it keeps the layout."""
    problem = filer_problem_of_leader(connected)
    return f": the leader waits for the filer: {problem}. It continues when the filer answers" if problem else ""


def _segments_on(admin: Admin, broker: str) -> list[str]:
    return [s.name for t in admin.topics() for s in t.segments if broker in s.brokers]
