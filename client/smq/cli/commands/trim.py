"""`smq topic trim`: removes old messages now."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from smq.cli.connection.filer_watch import filer_named
from smq.cli.connection.session import CommandFailed, TopicName, client, command, confirm, out, print_note
from smq.cli.output import formatting
from smq.cli.times import parse_time
from smq_core.model.units import format_size

if TYPE_CHECKING:
    from smq import TrimmedTopic


@command
def trim(
    topic: TopicName,
    before: Annotated[
        str,
        typer.Option(metavar="TIME", help="2024-05-01T12:00Z (in UTC without a zone), -3d for three days ago, or now."),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be removed, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, also if groups have not read it.")] = False,
) -> None:
    """Remove the messages of before a time, as retention does: whole segments that were sealed before it.

    Open segments stay, and so do segments with later messages; they are listed. `smq segment roll` seals an open one.
    """
    at = datetime.now(UTC) if before == "now" else parse_time(before, "--before")
    with client() as connected:
        admin, name = connected.admin(), formatting.topic(topic)
        with filer_named(connected):
            planned = admin.trim_topic(topic, at, skip_unread=True, preview=True)
        if dry_run or not planned.removed:
            _print(planned)
            out.print(
                f"topic {name}: {_sum(planned)} would be removed" if dry_run else f"topic {name}: nothing to remove"
            )
            return
        if not yes:
            _print(planned)
            if not confirm(f"Remove {_sum(planned)} of topic {name}?"):
                raise CommandFailed("nothing was removed")
        with filer_named(connected, see=f"smq segment list {name} --all"):
            done = admin.trim_topic(topic, at, skip_unread=True)
    _print(done)
    out.print(f"topic {name}: {_sum(done)} removed")


def _sum(trimmed: TrimmedTopic) -> str:
    messages, size = sum(it.messages for it in trimmed.removed), sum(it.bytes for it in trimmed.removed)
    segments = formatting.plural(len(trimmed.removed), "segment")
    return f"{formatting.plural(messages, 'message')} ({segments}, {format_size(size)})"


def _print(trimmed: TrimmedTopic) -> None:
    unread: dict[str, int] = {}
    for segment in trimmed.removed:
        for group, position in segment.unread.items():
            unread[group] = unread.get(group, 0) + segment.messages - position
    for group, messages in sorted(unread.items()):
        print_note(f"group {group} has not read {formatting.plural(messages, 'message')} of it, and skips them")
    for name, reason in trimmed.kept.items():
        print_note(f"{name} stays: {reason}")
