"""The rules for a group: commits never go back, and every acked message is delivered to some member.

Members repeat what was not committed, and a member that was paused may still be given what it had fetched. So there is
no rule about repeats in general, but these:

* A process is never given a message below what was committed before it started, or by itself before: commits do not go
  back. (To commit a lower position is allowed, and moves nothing.)
* Where a member begins to read a segment is 0, a committed position, or the end of a lost range; from there on it is
  given every message.
* At the end every acked message was delivered to a member, or is in a range that a member was told is lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from support.client_logs.findings import Findings, LostRanges
from support.client_logs.message_rules import Log, Sent
from support.client_logs.records import log_name, read_lines

Positions = dict[str, int]


@dataclass(frozen=True, slots=True)
class Commit:
    """One call. ``answered`` None: it was refused, or the member was killed; it may have succeeded."""

    member: str
    tried: int
    positions: Positions
    answered: int | None = None
    committed: Positions = field(default_factory=dict)


@dataclass
class MemberLog:
    """What one run of a member wrote down; deliveries are (number of its commits before, segment, offset)."""

    name: str
    started: int = 0
    ended: bool = False
    deliveries: list[tuple[int, str, int]] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    lost: LostRanges = field(default_factory=LostRanges)


def check_group(name: str, paths: Iterable[Path], sent: Sent, log: Log, findings: Findings) -> None:
    members = [read_member(path, name, sent, log, findings) for path in sorted(paths, key=log_name)]
    commits = [commit for member in members for commit in member.commits]
    lost = LostRanges()
    for member in members:
        for segment, ranges in member.lost.ranges.items():
            lost.ranges[segment].extend(ranges)
        lost.possible += member.lost.possible
    for member in members:
        check_deliveries(member, commits, lost, findings)
    check_complete(name, members, lost, sent, log, findings)
    lost.count(findings)
    findings.counts["member runs"] += len(members)
    findings.counts["commits"] += sum(commit.answered is not None for commit in commits)


def read_member(path: Path, group: str, sent: Sent, log: Log, findings: Findings) -> MemberLog:
    member = MemberLog(f"{group}/{path.stem}")
    pending: Commit | None = None
    for event, *words in read_lines(path):
        if event == "got":
            segment, offset, message = words[0], int(words[1]), " ".join(words[2:])
            message = log.note(member.name, segment, offset, message, findings)
            if message not in sent.outcomes:
                findings.add("never sent", f"{member.name}: {segment} {offset}: {message}")
            member.deliveries.append((len(member.commits), segment, offset))
        elif event in ("lost", "possibly-lost"):
            member.lost.read(event, words)
        elif event == "started":
            member.started = int(words[0])
        elif event == "trying":
            pending = Commit(member.name, int(words[0]), _positions(words[1:]))
            member.commits.append(pending)
        elif event == "committed" and pending is not None:
            committed = _positions(words[1:])
            if not committed.items() <= pending.positions.items():
                findings.add("wrong commit", f"{member.name}: tried {pending.positions}, committed {committed}")
            member.commits[-1] = Commit(member.name, pending.tried, pending.positions, int(words[0]), committed)
            pending = None
        elif event == "end":
            member.ended = True
        elif event not in ("at", "refused"):
            findings.add("member failed", f"{member.name}: {event} {' '.join(words)}")
    return member


def _positions(words: list[str]) -> Positions:
    return dict(zip(words[::2], map(int, words[1::2]), strict=True))


def check_deliveries(member: MemberLog, commits: list[Commit], lost: LostRanges, findings: Findings) -> None:
    """One run of a member: where it began to read each segment, and that it read on from there."""
    floor: dict[str, int] = defaultdict(int)
    tried: dict[str, set[int]] = defaultdict(set)
    for commit in commits:
        for segment, position in commit.positions.items():
            tried[segment].add(position)
        if commit.answered is not None and commit.answered < member.started:
            for segment, position in commit.committed.items():
                floor[segment] = max(floor[segment], position)
    expected: dict[str, int] = {}
    counted = 0
    for before, segment, offset in member.deliveries:
        for commit in member.commits[counted:before]:
            for name, position in commit.committed.items():
                floor[name] = max(floor[name], position)
        counted = before
        if offset < floor[segment]:
            findings.add("commit went back", f"{member.name}: {segment} {offset}, {floor[segment]} was committed")
        begins = offset == 0 or offset in tried[segment] or offset in lost.stops(segment)
        if offset != expected.get(segment) and not begins:
            last = expected.get(segment)
            findings.add("skipped", f"{member.name}: {segment}: {last} was next, {offset} came and is no commit")
        expected[segment] = offset + 1


def check_complete(
    group: str, members: list[MemberLog], lost: LostRanges, sent: Sent, log: Log, findings: Findings
) -> None:
    """Every acked message was delivered to a member, or a member was told that it is lost."""
    if not any(member.ended for member in members):
        findings.add("unfinished", f"{group}: no member came to its end")
    given = {(segment, offset) for member in members for _, segment, offset in member.deliveries}
    messages = {log.places[segment][offset] for segment, offset in given}
    findings.counts["delivered to members"] += sum(len(member.deliveries) for member in members)
    for message, (segment, offset) in sent.acked.items():
        if message in messages:
            continue
        if lost.cover(segment, offset):
            findings.counts["reported as lost to the group"] += 1
        else:
            findings.add("lost for the group", f"{group}: {message}, acked at {segment} {offset}")
