"""`smq segment …`: the segments of a topic, and what may be done to them by hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from smq.cli import words
from smq.cli.session import Failed, client, command, out
from smq.cli.tables import Output, phase, print_json, print_table
from smq.cli.topics import OutputOption, TopicName
from smq_core.errors import UnknownSegment

if TYPE_CHECKING:
    from smq import Admin, SegmentInfo, TopicInfo

app = typer.Typer(no_args_is_help=True, help="Segments: list, split, merge, move, roll, accept-loss.")

DONE_WITHIN = 30.0

SegmentName = Annotated[
    str, typer.Argument(metavar="SEGMENT", help="A segment; the open one of a range may be named without its number.")
]
WaitOption = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is done.")]


@app.command("list")
@command
def list_segments(
    topic: TopicName,
    all_: Annotated[bool, typer.Option("--all", "-a", help="The sealed ones too: the whole DAG.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """The segments of a topic: range, phase, brokers, offsets, why each was opened and sealed."""
    with client() as connected:
        admin = connected.admin()
        segments = admin.segments(topic, all=all_)
        ends = readable_ends(admin)
    if output is Output.JSON:
        return print_json(segments)
    now = time.time_ns() // 1000
    print_table(
        ["NAME", "RANGE", "PHASE", "BROKERS", "OFFSETS", "OPENED", "FROM", "SEALED", "AGE"],
        [
            (
                s.name,
                f"{s.start}-{s.stop}",
                phase(s.phase),
                ", ".join(s.brokers) or "–",
                offsets(s, ends),
                s.opened_because,
                " ".join(f"#{name.rsplit('-', 1)[1]}" for name in s.predecessors) or "–",
                s.sealed_because or "–",
                words.age(s.opened_at, now),
            )
            for s in segments
        ],
    )


@app.command()
@command
def split(
    segment: SegmentName,
    at: Annotated[list[int] | None, typer.Option("--at", metavar="PARTITION", help="Where; may be repeated.")] = None,
    wait: WaitOption = True,
) -> None:
    """Cut a segment in two (or more): in the middle, or at the partitions given."""
    _change([segment], lambda admin, topic, names: admin.split(topic, names[0], at or ()), wait)


@app.command()
@command
def merge(
    segments: Annotated[list[str], typer.Argument(metavar="SEGMENT SEGMENT…", help="Neighbours of one topic.")],
    wait: WaitOption = True,
) -> None:
    """Make one segment of neighbours."""
    if len(segments) < 2:
        raise typer.BadParameter("a merge needs two or more neighbouring segments")
    _change(segments, lambda admin, topic, names: admin.merge(topic, names), wait)


@app.command()
@command
def move(segment: SegmentName, wait: WaitOption = True) -> None:
    """Go on with the same range on other brokers."""
    _change([segment], lambda admin, topic, names: admin.move(topic, names[0]), wait)


@app.command()
@command
def roll(segment: SegmentName, wait: WaitOption = True) -> None:
    """Seal a segment and go on with the same range in a new one."""
    _change([segment], lambda admin, topic, names: admin.roll(topic, names[0]), wait)


@app.command()
@command
def accept_loss(
    segment: SegmentName, yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
) -> None:
    """Let a blocked seal go on although no replica answers: what only they hold is lost for good."""
    with client() as connected:
        admin = connected.admin()
        topic, (name,) = find(admin.topics(), [segment])
        if not yes and not typer.confirm(f"Give up what only the replicas of {name} hold?"):
            raise Failed("nothing was changed")
        admin.accept_loss(topic, name)
    out.print(
        f"segment {name}: the loss is accepted and written down, whoever leads from now on; "
        "`smq segment list --all` will show what was lost"
    )


def find(topics: Sequence[TopicInfo], names: Sequence[str]) -> tuple[str, list[str]]:
    """The topic and the full names of segments, which may lack their numbers and the default namespace.

    Raises UnknownSegment when one is not there, or is in several topics, or they are of different topics.
    """
    found = [_find_one(topics, name) for name in names]
    if len({topic for topic, _ in found}) > 1:
        raise UnknownSegment("these segments are of different topics: " + ", ".join(names))
    return found[0][0], [segment for _, segment in found]


def readable_ends(admin: Admin) -> dict[str, int]:
    """The watermark of each living segment, as its primary reported it."""
    return {s.segment: s.watermark for broker in admin.brokers() for s in broker.segments if s.primary}


def offsets(segment: SegmentInfo, ends: dict[str, int]) -> str:
    """``0-1234``: what can be read; of a living segment so far."""
    end = segment.end if segment.end is not None else ends.get(segment.name)
    text = f"0-{end}" if end is not None else "–"
    return f"{text} (lost {segment.lost[0]}-{segment.lost[1]})" if segment.lost else text


def _find_one(topics: Sequence[TopicInfo], name: str) -> tuple[str, str]:
    namespace, _, short = name.rpartition("/")
    hits = [
        (topic.name, segment.name)
        for topic in topics
        if not namespace or topic.name.startswith(f"{namespace}/")
        for segment in topic.segments
        if segment.name == short or (segment.name.rpartition("-")[0] == short and not segment.successors)
    ]
    in_default = [hit for hit in hits if hit[0].startswith("default/")]
    if len(hits) == 1 or (not namespace and len(in_default) == 1):
        return (in_default or hits)[0]
    if hits:
        raise UnknownSegment(f"{name} is in several topics: put the namespace before it, such as {hits[0][0]}…")
    living = sorted(s.name for t in topics for s in t.segments if not s.successors)
    raise UnknownSegment(
        f"there is no open segment {name}. The open ones are: {', '.join(living[:20]) or 'none'}"
        + (", …" if len(living) > 20 else "")
    )


def _change(names: Sequence[str], ask: Callable[[Admin, str, list[str]], None], wait: bool) -> None:
    with client() as connected:
        admin = connected.admin()
        topic, full = find(admin.topics(), names)
        ask(admin, topic, full)
        if not wait:
            out.print(f"asked for: {', '.join(full)}; `smq segment list {words.topic(topic)}` shows when it is done")
            return
        successors = _wait_for_successors(admin, topic, full)
    out.print(f"{', '.join(full)} sealed; {', '.join(successors)} open")


def _wait_for_successors(admin: Admin, topic: str, names: Sequence[str]) -> list[str]:
    """The open segments that took over. Raises Failed when they are not there in time."""
    until = time.monotonic() + DONE_WITHIN
    while time.monotonic() < until:
        living = admin.segments(topic)
        if not any(s.name in names for s in living):
            opened = [s.name for s in admin.segments(topic, all=True) if set(names) & set(s.predecessors)]
            return opened
        time.sleep(0.1)
    blocked = [c.message for c in admin.topic(topic).conditions if c.type == "SealBlocked" and c.status]
    raise Failed(
        f"{', '.join(names)}: asked for, but not done after {DONE_WITHIN:.0f} s. "
        + (blocked[0] if blocked else f"It goes on; see `smq topic describe {words.topic(topic)}`")
    )
