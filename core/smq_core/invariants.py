"""The twelve invariants, as pure functions over plain observations: what was sent, acked, stored, read.

Each function looks at observations of one kind and returns the violations it finds, so that the simulation, tests with
real processes and chaos tests state the same thing. An empty list is a pass.

1. every acked message is in the final log or in a reported loss
2. each batch occurs once; each message of a producer that did not crash occurs once over the whole DAG
3. per key the producer's order holds; acked before sent implies read before
4. a delivered (segment, offset) keeps its bytes; none is delivered at or above the watermark
5. chunks are contiguous, one per offset, one seal, nothing after it, no stray object
6. all observers see one end, at or above every acked offset
7. after a replica is fenced, acks cover only what it or the chain holds
8. open and sealing segments cover the ring; per partition one segment accepts, none before its predecessors' seals
9. a follower's log is a prefix of its primary's, trimmed no further than the chain's end
10. within a generation one owner per segment, none before the predecessors are committed; commits never go back
11. memory and producer maps stay bounded
12. when faults end, everything comes to an end
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from smq_core.keyspace import KeyRange, covers_exactly
from smq_core.model import ChunkInfo, Layout, Phase


@dataclass(frozen=True, slots=True)
class Violation:
    """Which invariant does not hold, of what (segment, message, group), and how."""

    number: int
    subject: str
    what: str

    def __str__(self) -> str:
        return f"invariant {self.number} does not hold for {self.subject}: {self.what}"


class Message(NamedTuple):
    """What identifies a message in a test. ``producer`` names one life of it; ``serial`` counts its messages."""

    producer: str
    serial: int
    key: str
    partition: int
    sent_at: int


class Row(NamedTuple):
    """A message at its place."""

    segment: str
    offset: int
    message: Message


def acked_is_kept(acked: Mapping[Message, Row], log: Iterable[Row], lost: Mapping[str, int]) -> list[Violation]:
    """(1) ``lost``: the first lost offset of the segments of which a loss was reported."""
    kept = {row.message for row in log}
    return [
        Violation(1, row.segment, f"{_name(message)} was acked at {row.offset} and is not in the log")
        for message, row in acked.items()
        if message not in kept and not (row.segment in lost and row.offset >= lost[row.segment])
    ]


def each_once(log: Iterable[Row], expected: Iterable[Message] = ()) -> list[Violation]:
    """(2) Nothing twice in the log; what is ``expected`` (all that uncrashed producers sent, unless lost) is there."""
    found: dict[Message, Row] = {}
    bad = []
    for row in log:
        if row.message in found:
            first = found[row.message]
            bad.append(
                Violation(2, row.segment, f"{_name(row.message)} is twice in the log: {_at(first)} and {_at(row)}")
            )
        found[row.message] = row
    bad += [Violation(2, m.producer, f"{_name(m)} was sent and is not in the log") for m in expected if m not in found]
    return bad


def order_holds(read: Sequence[Row], acked_at: Mapping[Message, int]) -> list[Violation]:
    """(3) ``read`` in the order in which one reader read it; ``acked_at`` when the sender learnt of the ack."""
    bad = []
    last: dict[tuple[str, str], Row] = {}
    newest_sent: dict[str, Row] = {}
    for row in read:
        message = row.message
        before = last.get((message.producer, message.key))
        if before is not None and before.message.serial > message.serial:
            bad.append(Violation(3, row.segment, f"{_name(message)} was read after {_name(before.message)}"))
        last[message.producer, message.key] = row
        newest = newest_sent.get(message.key)
        if newest is None or message.sent_at > newest.message.sent_at:
            newest_sent[message.key] = row
        elif message in acked_at and acked_at[message] < newest.message.sent_at:
            words = f"{_name(message)} was acked before {_name(newest.message)} was sent, and read after it"
            bad.append(Violation(3, row.segment, words))
    return bad


def delivered_is_stable(delivered: Iterable[Row], log: Iterable[Row], ends: Mapping[str, int]) -> list[Violation]:
    """(4) What was delivered is what the log has there. ``ends``: of segments with a reported loss, nothing beyond."""
    truth: dict[tuple[str, int], Message] = {(row.segment, row.offset): row.message for row in log}
    bad = []
    for row in delivered:
        if row.segment in ends and row.offset >= ends[row.segment]:
            continue
        known = truth.setdefault((row.segment, row.offset), row.message)
        if known != row.message:
            bad.append(
                Violation(4, row.segment, f"at {row.offset} {_name(row.message)} was read, it is {_name(known)}")
            )
    return bad


def not_above(offset: int, watermark: int, segment: str) -> list[Violation]:
    """(4) ``offset`` is the end of what was delivered."""
    if offset <= watermark:
        return []
    return [Violation(4, segment, f"delivered up to {offset}, durable is only {watermark}")]


def chain_is_whole(segment: str, objects: Mapping[int, ChunkInfo], *, sealed: bool) -> list[Violation]:
    """(5) ``objects``: every object in the segment's folder by the offset in its name."""
    bad = []
    at = 0
    seen = set()
    while (info := objects.get(at)) is not None:
        seen.add(at)
        if info.first != at:
            bad.append(Violation(5, segment, f"the chunk named {at} says that it begins at {info.first}"))
        if info.sealed:
            break
        if info.rows <= 0:
            bad.append(Violation(5, segment, f"the chunk at {at} has no rows and is no seal"))
            break
        at = info.end
    else:
        if sealed:
            bad.append(Violation(5, segment, f"no seal chunk at the chain's end, {at}"))
    stray = sorted(set(objects) - seen)
    bad += [Violation(5, segment, f"the object at {name} is not part of the chain") for name in stray]
    return bad


def one_end(segment: str, ends: Iterable[int], acked: Iterable[int]) -> list[Violation]:
    """(6) ``ends`` as each observer was told, ``acked`` the ends of acked batches of a segment without loss."""
    told = sorted(set(ends))
    if len(told) > 1:
        return [Violation(6, segment, f"observers were told different ends: {told}")]
    beyond = [offset for offset in acked if told and offset > told[0]]
    return [Violation(6, segment, f"acked up to {max(beyond)}, the end is {told[0]}")] if beyond else []


def ack_is_covered(segment: str, end: int, held: Mapping[str, int], chain_end: int) -> list[Violation]:
    """(7) An ack up to ``end``; ``held`` is the end of each replica's log at this moment (none for ``Stored``)."""
    short = {name: own for name, own in held.items() if own < end} if held else {"the chain": chain_end}
    if end <= chain_end or not short:
        return []
    return [Violation(7, segment, f"acked up to {end}; {short} is all that is held, the chain ends at {chain_end}")]


def ring_is_covered(layout: Layout) -> list[Violation]:
    """(8) Of every layout that was ever put."""
    parts = [s.range for s in layout.segments if s.phase in (Phase.OPEN, Phase.SEALING)]
    if covers_exactly(parts, layout.ring):
        return []
    return [Violation(8, layout.topic, f"layout {layout.version} covers {sorted(parts)} of {layout.ring}")]


def one_accepts(segment: str, range_: KeyRange, others: Mapping[str, KeyRange]) -> list[Violation]:
    """(8) ``segment`` accepts a batch now; ``others`` have accepted before and have no seal chunk yet."""
    return [
        Violation(8, segment, f"it accepts while {name}, which is not sealed, covers {other} too")
        for name, other in others.items()
        if name != segment and other.overlaps(range_)
    ]


def predecessors_sealed(segment: str, predecessors: Iterable[str], sealed: Iterable[str]) -> list[Violation]:
    """(8) ``segment`` accepts a batch now."""
    missing = sorted(set(predecessors) - set(sealed))
    return [Violation(8, segment, f"it accepts before its predecessor {name} is sealed") for name in missing]


def follower_is_prefix(segment: str, end: int, own: Sequence[Row], primary: Mapping[int, Message]) -> list[Violation]:
    """(9) ``own``: what a follower took when it ended at ``end``; ``primary``: the primary's log."""
    if [row.offset for row in own] != list(range(end, end + len(own))):
        return [Violation(9, segment, f"a follower that ended at {end} took {[row.offset for row in own]}")]
    return [
        Violation(9, segment, f"a follower has {_name(row.message)} at {row.offset}, its primary has not")
        for row in own
        if primary.get(row.offset) != row.message
    ]


def trimmed_in_chain(segment: str, who: str, trimmed: int, chain_end: int) -> list[Violation]:
    """(9)"""
    if trimmed <= chain_end:
        return []
    return [Violation(9, segment, f"{who} let go of everything below {trimmed}, the chain ends at {chain_end}")]


def one_owner(
    group: str, owners: Mapping[tuple[int, str], str], generation: int, assignment: Mapping[str, str]
) -> list[Violation]:
    """(10) ``owners``: of each (generation, segment) so far."""
    return [
        Violation(10, segment, f"in generation {generation} of {group} it is {member}'s and {other}'s")
        for segment, member in assignment.items()
        if (other := owners.get((generation, segment), member)) != member
    ]


def predecessors_committed(
    group: str, segment: str, predecessors: Iterable[str], committed: Mapping[str, int], ends: Mapping[str, int]
) -> list[Violation]:
    """(10) ``segment`` gets an owner now. ``ends``: of sealed segments; one that is missing is not sealed."""
    return [
        Violation(10, segment, f"{group} hands it out before {name} is committed to its end ({ends.get(name)})")
        for name in predecessors
        if name not in ends or committed.get(name, 0) < ends[name]
    ]


def commits_grow(group: str, before: Mapping[str, int], after: Mapping[str, int]) -> list[Violation]:
    """(10) What is left out of ``after`` was let go, not moved."""
    return [
        Violation(10, segment, f"{group}'s position goes back from {before[segment]} to {offset}")
        for segment, offset in after.items()
        if offset < before.get(segment, 0)
    ]


def bounded(subject: str, what: str, size: int, limit: int) -> list[Violation]:
    """(11)"""
    return [Violation(11, subject, f"{what} is {size}, the limit is {limit}")] if size > limit else []


def unfinished(waiting: Mapping[str, str]) -> list[Violation]:
    """(12) ``waiting``: what has not come to its end though faults ended long ago: subject -> words."""
    return [Violation(12, subject, words) for subject, words in waiting.items()]


def _name(message: Message) -> str:
    return f"{message.producer}#{message.serial} (key {message.key})"


def _at(row: Row) -> str:
    return f"{row.segment}@{row.offset}"


def nothing_referenced_is_missing(
    ends: Mapping[str, int | None], chains: Mapping[str, Sequence[ChunkInfo]]
) -> list[Violation]:
    """(12) Nothing referenced was collected. ``ends`` are the segments that the index (with their ends) and the layout
    (None) name, ``chains`` what the filer has of every segment, walked from offset 0."""
    bad = []
    for name, end in ends.items():
        chain = chains.get(name, ())
        if end is not None and not (chain and chain[-1].sealed and chain[-1].first == end):
            last = chain[-1].end if chain else 0
            bad.append(Violation(12, name, f"the index says it ends at {end}; what is left of it goes up to {last}"))
    return bad


def nothing_is_left_over(ends: Mapping[str, int | None], files: Mapping[str, int]) -> list[Violation]:
    """(12) When collecting is done, only what is referenced has files. ``files``: how many each segment has."""
    return [
        Violation(12, name, f"{count} files are left of a segment that nothing refers to")
        for name, count in files.items()
        if count and name not in ends
    ]
