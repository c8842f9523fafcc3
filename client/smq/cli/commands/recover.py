"""`smq topic recover`: writes a lost layout, uid or spec of a topic anew."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from smq.cli.connection.filer_watch import filer_named
from smq.cli.connection.session import CommandFailed, TopicName, client, command, confirm, out
from smq.cli.output import formatting

if TYPE_CHECKING:
    from smq import RecoveredTopic


@command
def recover(
    topic: TopicName,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be written, and change nothing.")] = False,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Also if acked messages may be lost with brokers that do not answer.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Write a topic's _layout.json, _current.json or _topic.json anew, after it was deleted by mistake.

    The leader rebuilds it from the index, the chunk files, and what brokers have in memory and in journals. It never
    replaces a document that exists, and it never uses the name of a segment again. Start all brokers first.
    """
    with client() as connected:
        admin = connected.admin()
        with filer_named(connected):
            planned = admin.recover_topic(topic, preview=True)
        _print(planned)
        if dry_run:
            return
        if planned.unknown and not accept_loss:
            raise CommandFailed(
                "nothing was changed, because acked messages may be lost. Start the brokers that hosted the topic, and "
                "repeat the command; --accept-loss goes on without them"
            )
        if not yes and not confirm(f"Write {formatting.plural(len(planned.writes), 'document')}?"):
            raise CommandFailed("nothing was changed")
        with filer_named(connected, see=f"smq topic describe {topic}"):
            done = admin.recover_topic(topic, accept_loss=accept_loss)
    if done.writes != planned.writes:
        _print_lines("Written", done.writes)
    out.print(f"topic {topic} recovered; `smq topic describe {topic}` shows when it is ready")


def _print(planned: RecoveredTopic) -> None:
    _print_lines("Found", planned.found)
    _print_lines("May be lost", planned.unknown)
    _print_lines("To be written", planned.writes)


def _print_lines(heading: str, lines: Iterable[str]) -> None:
    for i, line in enumerate(lines):
        if not i:
            out.print(f"{heading}:")
        out.print(f"  {line}")
