"""The twelve invariants, as pure functions over plain observations of what was sent, acked, stored and read.

Each function checks observations of one kind and returns the violations; an empty list is a pass. The simulation, the
tests with real processes and the chaos tests all use these functions.

1. Every acked message is in the final log, or inside a range of lost messages that is reported.
2. Each batch occurs once. Each message of a producer that did not crash occurs once in the whole DAG.
3. The producer's order holds for each key. If one message was acked before another was sent, it is read before it.
   After a newer epoch of a producer, no older one writes. Two processes never write in one epoch to one segment, nor
   to its descendants, and never claim one epoch.
4. A delivered (segment, offset) keeps its bytes, and no message at or above the watermark is delivered.
5. Chunks are contiguous, with one per offset and one seal chunk. No object follows the seal, and none is orphaned.
6. All observers see the same end of a segment, at or above every acked offset.
7. After a replica is fenced, acks cover only messages that it or the chain has.
8. Open and sealing segments cover the ring. At most one segment accepts batches of a partition, and none does before
   its predecessors are sealed.
9. A follower's log is a prefix of its primary's, and is trimmed at most up to the chain's end. At each offset, all
   replicas and the chain agree on the producers' state.
10. Within a generation a segment has one owner, and none before its predecessors are committed. Committed positions
    never decrease.
11. Memory and producer maps stay bounded, but no producer is forgotten that has an open stream or a batch that is
    not durable.
12. After the faults end, everything finishes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import Layout, Micros, Phase
from smq_core.model.keyspace import KeyRange, covers_exactly
from smq_core.model.loss import Loss


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken invariant: its number, the subject (segment, message, group), and a description."""

    number: int
    subject: str
    what: str

    def __str__(self) -> str:
        return f"invariant {self.number} does not hold for {self.subject}: {self.what}"


class Message(NamedTuple):
    """The identity of a message in a test. ``producer`` names one run of a producer; ``serial`` counts its messages."""

    producer: str
    serial: int
    key: str
    partition: int
    sent_at: Micros


class Row(NamedTuple):
    """A message with its segment and offset."""

    segment: str
    offset: int
    message: Message


def acked_is_kept(acked: Mapping[Message, Row], log: Iterable[Row], lost: Mapping[str, Loss]) -> list[Violation]:
    """(1) ``lost`` has the reported loss of each segment that has one."""
    kept = {row.message for row in log}
    return [
        Violation(
            1,
            row.segment,
            f"{_name(message)} was acked at {row.offset}, but is not in the log; reported is {lost.get(row.segment)}",
        )
        for message, row in acked.items()
        if message not in kept and not (row.segment in lost and _covers(lost[row.segment], row.offset))
    ]


def loss_is_reported(segment: str, who: str, lost: Loss | None, reported: Loss | None) -> list[Violation]:
    """(1) ``lost`` is what the seal says, ``reported`` what ``who`` reports. It may report more, but never less."""
    if lost is None or lost.is_empty:
        return []
    covers_end = reported is not None and (reported.at_least or not lost.at_least)
    if reported is not None and covers_end and reported.start <= lost.start and reported.stop >= lost.stop:
        return []
    return [Violation(1, segment, f"its seal has lost {lost}, but {who} reports {reported}")]


def loss_is_true(segment: str, end: int, lost: Loss, acked_upto: int) -> list[Violation]:
    """(1) ``lost`` is recorded at the segment's ``end``. No watermark of a replica was ever above ``acked_upto``."""
    if lost.start == end and lost.stop <= max(end, acked_upto):
        return []
    return [Violation(1, segment, f"it ends at {end} and acked at most {acked_upto}, but lost is {lost}")]


def each_once(log: Iterable[Row], expected: Iterable[Message] = ()) -> list[Violation]:
    """(2) No message is in the log twice, and every ``expected`` message is in it.

    Expected are all messages that producers sent which did not crash, except reported losses.
    """
    found: dict[Message, Row] = {}
    violations = []
    for row in log:
        if row.message in found:
            first = found[row.message]
            violations.append(
                Violation(2, row.segment, f"{_name(row.message)} is twice in the log: {_at(first)} and {_at(row)}")
            )
        found[row.message] = row
    violations += [
        Violation(2, m.producer, f"{_name(m)} was sent, but is not in the log") for m in expected if m not in found
    ]
    return violations


def order_holds(read: Sequence[Row], acked_at: Mapping[Message, int]) -> list[Violation]:
    """(3) ``read`` is in the order of one reader; ``acked_at`` is the time when the sender received the ack."""
    violations = []
    last: dict[tuple[str, str], Row] = {}
    newest_sent: dict[str, Row] = {}
    for row in read:
        message = row.message
        before = last.get((message.producer, message.key))
        if before is not None and before.message.serial > message.serial:
            violations.append(Violation(3, row.segment, f"{_name(message)} was read after {_name(before.message)}"))
        last[message.producer, message.key] = row
        newest = newest_sent.get(message.key)
        if newest is None or message.sent_at > newest.message.sent_at:
            newest_sent[message.key] = row
        elif message in acked_at and acked_at[message] < newest.message.sent_at:
            words = f"{_name(message)} was acked before {_name(newest.message)} was sent, and read after it"
            violations.append(Violation(3, row.segment, words))
    return violations


def writes_in_turn(
    segment: str, producer: str, epoch: int, instance: str, known_epoch: int, known_instances: Collection[str]
) -> list[Violation]:
    """(3) A batch is appended. The segment and its ancestors know this epoch of the producer, and these instances."""
    if epoch > known_epoch or (epoch == known_epoch and set(known_instances) == {instance}):
        return []
    words = f"{producer} writes in epoch {epoch} as {instance}, after epoch {known_epoch} of {sorted(known_instances)}"
    return [Violation(3, segment, words)]


def claimed_once(producer: str, epoch: int, instances: Collection[str]) -> list[Violation]:
    """(3) ``instances`` claimed this epoch."""
    if len(instances) <= 1:
        return []
    return [Violation(3, producer, f"epoch {epoch} was claimed by {sorted(instances)}")]


def delivered_is_stable(delivered: Iterable[Row], log: Iterable[Row], ends: Mapping[str, int]) -> list[Violation]:
    """(4) Each delivered message is the one in the log. ``ends``: delivered rows at or beyond these are not compared.

    They are the ends of segments with a reported loss.
    """
    truth: dict[tuple[str, int], Message] = {(row.segment, row.offset): row.message for row in log}
    violations = []
    for row in delivered:
        if row.segment in ends and row.offset >= ends[row.segment]:
            continue
        known = truth.setdefault((row.segment, row.offset), row.message)
        if known != row.message:
            violations.append(
                Violation(4, row.segment, f"at {row.offset} {_name(row.message)} was read, but it is {_name(known)}")
            )
    return violations


def not_above(offset: int, watermark: int, segment: str) -> list[Violation]:
    """(4) ``offset`` is the end of what was delivered."""
    if offset <= watermark:
        return []
    return [Violation(4, segment, f"delivered up to {offset}, but the watermark is {watermark}")]


def chain_is_whole(segment: str, objects: Mapping[int, ChunkInfo], *, sealed: bool) -> list[Violation]:
    """(5) ``objects`` has every object in the segment's folder, by the offset in its name."""
    violations = []
    at = 0
    seen = set()
    while (info := objects.get(at)) is not None:
        seen.add(at)
        if info.first != at:
            violations.append(Violation(5, segment, f"the metadata of chunk {at} has the first offset {info.first}"))
        if info.sealed:
            break
        if info.rows <= 0:
            violations.append(Violation(5, segment, f"the chunk at {at} has no rows, but is not a seal"))
            break
        at = info.end
    else:
        if sealed:
            violations.append(Violation(5, segment, f"the chain's end, {at}, has no seal chunk"))
    orphan = sorted(set(objects) - seen)
    violations += [Violation(5, segment, f"the object at {name} is not part of the chain") for name in orphan]
    return violations


def one_end(segment: str, ends: Iterable[int], acked: Iterable[int]) -> list[Violation]:
    """(6) ``ends`` has each observer's end; ``acked`` has the ends of acked batches of a segment without loss."""
    reported = sorted(set(ends))
    if len(reported) > 1:
        return [Violation(6, segment, f"observers got different ends: {reported}")]
    beyond = [offset for offset in acked if reported and offset > reported[0]]
    return [Violation(6, segment, f"acked up to {max(beyond)}, but the end is {reported[0]}")] if beyond else []


def ack_is_covered(segment: str, end: int, held: Mapping[str, int], chain_end: int) -> list[Violation]:
    """(7) An ack up to ``end``. ``held`` has the current end of each replica's log (empty for ``Stored``)."""
    short = {name: own for name, own in held.items() if own < end} if held else {"the chain": chain_end}
    if end <= chain_end or not short:
        return []
    return [Violation(7, segment, f"acked up to {end}, but only {short} is held and the chain ends at {chain_end}")]


def ring_is_covered(layout: Layout) -> list[Violation]:
    """(8) Must hold for every layout that is ever put."""
    parts = [s.range for s in layout.segments if s.phase in (Phase.OPEN, Phase.SEALING)]
    if covers_exactly(parts, layout.ring):
        return []
    return [Violation(8, layout.topic, f"layout {layout.version} covers {sorted(parts)} of {layout.ring}")]


def one_accepts(segment: str, range_: KeyRange, others: Mapping[str, KeyRange]) -> list[Violation]:
    """(8) ``segment`` accepts a batch now. ``others`` accepted batches before and have no seal chunk yet."""
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
    """(9) ``own`` has the rows that a follower appended from ``end`` on; ``primary`` is the primary's log."""
    if [row.offset for row in own] != list(range(end, end + len(own))):
        return [Violation(9, segment, f"a follower that ended at {end} appended {[row.offset for row in own]}")]
    return [
        Violation(9, segment, f"a follower has {_name(row.message)} at {row.offset}, but its primary does not")
        for row in own
        if primary.get(row.offset) != row.message
    ]


def same_producers(segment: str, who: str, end: int, own: object, primary: object) -> list[Violation]:
    """(9) ``own`` is what ``who`` knows of the producers at this offset, ``primary`` what the primary knew there."""
    if own == primary:
        return []
    return [Violation(9, segment, f"the producers at {end} are {primary}, but {who} has {own}")]


def trimmed_in_chain(segment: str, who: str, trimmed: int, chain_end: int) -> list[Violation]:
    """(9) A replica trims its log at most up to the chain's end."""
    if trimmed <= chain_end:
        return []
    return [Violation(9, segment, f"{who} trimmed its log up to {trimmed}, but the chain ends at {chain_end}")]


def one_owner(
    group: str, owners: Mapping[tuple[int, str], str], generation: int, assignment: Mapping[str, str]
) -> list[Violation]:
    """(10) ``owners`` has the owner of each (generation, segment) so far."""
    return [
        Violation(10, segment, f"in generation {generation} of {group} both {member} and {other} own it")
        for segment, member in assignment.items()
        if (other := owners.get((generation, segment), member)) != member
    ]


def predecessors_committed(
    group: str, segment: str, predecessors: Iterable[str], committed: Mapping[str, int], ends: Mapping[str, int]
) -> list[Violation]:
    """(10) ``segment`` gets an owner now. ``ends`` has the ends of all sealed segments."""
    return [
        Violation(10, segment, f"{group} assigns it before {name} is committed to its end ({ends.get(name)})")
        for name in predecessors
        if name not in ends or committed.get(name, 0) < ends[name]
    ]


def commits_grow(group: str, before: Mapping[str, int], after: Mapping[str, int]) -> list[Violation]:
    """(10) A segment that is missing in ``after`` was released, not moved back."""
    return [
        Violation(10, segment, f"the position of {group} decreases from {before[segment]} to {offset}")
        for segment, offset in after.items()
        if offset < before.get(segment, 0)
    ]


def bounded(subject: str, what: str, size: int, limit: int) -> list[Violation]:
    """(11) A size stays within its limit."""
    return [Violation(11, subject, f"{what} is {size}, but the limit is {limit}")] if size > limit else []


def unfinished(waiting: Mapping[str, str]) -> list[Violation]:
    """(12) ``waiting`` has a description of each subject that has not finished, long after the faults ended."""
    return [Violation(12, subject, words) for subject, words in waiting.items()]


def _covers(lost: Loss, offset: int) -> bool:
    return lost.start <= offset and (lost.at_least or offset < lost.stop)


def _name(message: Message) -> str:
    return f"{message.producer}#{message.serial} (key {message.key})"


def _at(row: Row) -> str:
    return f"{row.segment}@{row.offset}"


def nothing_referenced_is_missing(
    ends: Mapping[str, int | None], chains: Mapping[str, Sequence[ChunkInfo]]
) -> list[Violation]:
    """(12) Garbage collection deleted no referenced file.

    ``ends`` has the segments of the index with their ends, and those of the layout with None. ``chains`` has the chunks
    in the filer of every segment, walked from offset 0.
    """
    violations = []
    for name, end in ends.items():
        chain = chains.get(name, ())
        if end is not None and not (chain and chain[-1].sealed and chain[-1].first == end):
            last = chain[-1].end if chain else 0
            violations.append(
                Violation(12, name, f"it ends at {end} according to the index, but its chunks end at {last}")
            )
    return violations


def nothing_is_left_over(ends: Mapping[str, int | None], files: Mapping[str, int]) -> list[Violation]:
    """(12) After garbage collection only referenced segments have files. ``files`` has the count of each segment."""
    return [
        Violation(12, name, f"{count} files are left of an unreferenced segment")
        for name, count in files.items()
        if count and name not in ends
    ]
