"""`smq segment …`: lists the segments of a topic and changes them manually."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from smq.cli.connection.filer_watch import filer_named
from smq.cli.connection.session import CommandFailed, TopicName, client, command, confirm, out
from smq.cli.connection.waiting import DONE_TIMEOUT_SECONDS, WaitOption, WaitTimeout, cause_of_wait, wait_until
from smq.cli.output import formatting
from smq.cli.output.rendering import ListCommand, Output, OutputOption, phase, print_list
from smq_core.errors import UnknownSegment
from smq_core.model.loss import Loss
from smq_core.model.units import format_size, format_time

if TYPE_CHECKING:
    from smq import Admin, SegmentInfo, TopicInfo

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Segments: list, split, merge, move, roll, accept-loss."
)

_WIDE = ["BYTES", "DURABILITY", "SCHEMA", "SEALED AT"]

SegmentName = Annotated[
    str, typer.Argument(metavar="SEGMENT", help="A segment. The number may be left out for the open one of a range.")
]


@app.command("list", cls=ListCommand)
@command
def list_segments(
    topic: TopicName,
    all_: Annotated[bool, typer.Option("--all", "-a", help="Also list sealed segments: the whole DAG.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the segments of a topic: range, phase, brokers, offsets, why each was opened and sealed."""
    with client() as connected:
        admin = connected.admin()
        segments = admin.segments(topic, all=all_)
        ends = admin.topic(topic).ends
    now = datetime.now(UTC)
    print_list(
        output,
        segments,
        ["NAME", "RANGE", "PHASE", "BROKERS", "OFFSETS", "OPENED", "FROM", "SEALED", "AGE", *_WIDE],
        [
            (
                s.name,
                f"{s.start}-{s.stop}",
                phase(s.phase),
                ", ".join(s.brokers) or "–",
                format_offsets(s, ends),
                s.opened_because,
                " ".join(f"#{name.rsplit('-', 1)[1]}" for name in s.predecessors) or "–",
                s.sealed_because or "–",
                formatting.age(s.opened_at, now),
                format_size(s.bytes) if s.end is not None else "–",
                s.durability,
                str(s.schema_version),
                format_time(s.sealed_at) if s.sealed_at else "–",
            )
            for s in segments
        ],
        right=["BYTES"],
        wide=_WIDE,
    )


@app.command()
@command
def split(
    segment: SegmentName,
    at: Annotated[
        list[int] | None,
        typer.Option("--at", metavar="PARTITION", help="The partition at which to split; may be repeated."),
    ] = None,
    wait: WaitOption = True,
    timeout: WaitTimeout = DONE_TIMEOUT_SECONDS,
) -> None:
    """Split a segment in the middle, or at the given partitions."""
    _submit_and_wait([segment], lambda admin, topic, names: admin.split(topic, names[0], at or ()), wait, timeout)


@app.command()
@command
def merge(
    segments: Annotated[
        list[str], typer.Argument(metavar="SEGMENT SEGMENT…", help="Neighbouring segments of one topic.")
    ],
    wait: WaitOption = True,
    timeout: WaitTimeout = DONE_TIMEOUT_SECONDS,
) -> None:
    """Merge neighbouring segments into one."""
    if len(segments) < 2:
        raise typer.BadParameter("a merge needs two or more neighbouring segments")
    _submit_and_wait(segments, lambda admin, topic, names: admin.merge(topic, names), wait, timeout)


@app.command()
@command
def move(segment: SegmentName, wait: WaitOption = True, timeout: WaitTimeout = DONE_TIMEOUT_SECONDS) -> None:
    """Move a segment: continue its range on other brokers."""
    _submit_and_wait([segment], lambda admin, topic, names: admin.move(topic, names[0]), wait, timeout)


@app.command()
@command
def roll(segment: SegmentName, wait: WaitOption = True, timeout: WaitTimeout = DONE_TIMEOUT_SECONDS) -> None:
    """Seal a segment and continue its range in a new one."""
    _submit_and_wait([segment], lambda admin, topic, names: admin.roll(topic, names[0]), wait, timeout)


@app.command()
@command
def accept_loss(
    segment: SegmentName, yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
) -> None:
    """Finish a blocked seal although no replica answers. Messages that only those replicas hold are lost for good."""
    with client() as connected:
        admin = connected.admin()
        topic, (name,) = find_segments(admin.topics(), [segment])
        if not yes and not confirm(f"Accept the loss of messages that only the replicas of {name} hold?"):
            raise CommandFailed("nothing was changed")
        with filer_named(connected, see=f"smq segment list {formatting.topic(topic)}"):
            admin.accept_loss(topic, name)
    out.print(
        f"segment {name}: the loss is accepted, and a later leader keeps to it; "
        "`smq segment list --all` will show what was lost"
    )


def find_segments(topics: Sequence[TopicInfo], names: Sequence[str]) -> tuple[str, list[str]]:
    """Returns the topic and full names of segments given without their numbers or the default namespace.

    Raises UnknownSegment if one does not exist or is in several topics, or if they are of different topics.
    """
    found = [_find_segment(topics, name) for name in names]
    if len({topic for topic, _ in found}) > 1:
        raise UnknownSegment("these segments belong to different topics: " + ", ".join(names))
    return found[0][0], [segment for _, segment in found]


def format_offsets(segment: SegmentInfo, ends: Mapping[str, int]) -> str:
    """The readable offsets, such as ``0-1234``; of a living segment, those so far, as far as they are known."""
    end = segment.end if segment.end is not None else ends.get(segment.name)
    text = f"0-{end}" if end is not None else "unknown"
    return f"{text} ({format_loss(segment.lost)})" if segment.lost else text


def format_loss(lost: Loss) -> str:
    """The lost offsets, such as ``lost 10-20``."""
    if not lost.is_certain:
        return f"possibly lost from {lost.start} on"
    return f"lost {lost.start}-{lost.stop}{' or more' if lost.at_least else ''}"


def _find_segment(topics: Sequence[TopicInfo], name: str) -> tuple[str, str]:
    namespace, _, short = name.rpartition("/")
    matches = [
        (topic.name, segment.name)
        for topic in topics
        if not namespace or topic.name.startswith(f"{namespace}/")
        for segment in topic.segments
        if segment.name == short or (segment.name.rpartition("-")[0] == short and not segment.successors)
    ]
    in_default = [hit for hit in matches if hit[0].startswith("default/")]
    if len(matches) == 1 or (not namespace and len(in_default) == 1):
        return (in_default or matches)[0]
    if matches:
        raise UnknownSegment(f"{name} is in several topics; put the namespace before it, such as {matches[0][0]}…")
    living = sorted(s.name for t in topics for s in t.segments if not s.successors)
    raise UnknownSegment(
        f"there is no open segment {name}. The open ones are: {', '.join(living[:20]) or 'none'}"
        + (", …" if len(living) > 20 else "")
    )


def _submit_and_wait(
    names: Sequence[str], submit_request: Callable[[Admin, str, list[str]], None], wait: bool, timeout: float
) -> None:
    with client(within=timeout) as connected:
        admin = connected.admin()
        topic, full = find_segments(admin.topics(), names)
        with filer_named(connected, see=f"smq segment list {formatting.topic(topic)}"):
            submit_request(admin, topic, full)
        if not wait:
            out.print(
                f"requested: {', '.join(full)}; `smq segment list {formatting.topic(topic)}` shows when it is done"
            )
            return
        successors = wait_until(
            lambda: _open_successors(admin, topic, full),
            f"the leader to seal {', '.join(full)} and to open successors",
            timeout,
            lambda: (
                f"{', '.join(full)}: requested, but not done after {timeout:.0f} s. "
                + (cause_of_wait(connected, topic) or f"The leader continues; see `smq topic describe {topic}`")
            ),
        )
    out.print(f"{', '.join(full)} sealed; {', '.join(successors)} open")


def _open_successors(admin: Admin, topic: str, names: Sequence[str]) -> list[str] | None:
    """The open successors, or None while the segments are not sealed."""
    if any(s.name in names for s in admin.segments(topic)):
        return None
    return [s.name for s in admin.segments(topic, all=True) if set(names) & set(s.predecessors)]
