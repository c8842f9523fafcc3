"""What is checked at the end of a history, when faults have ended and nothing is in progress."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from smq_core import invariants as inv
from smq_core.invariants import Row
from smq_core.model.entities import Layout, number_of, range_of
from smq_core.model.loss import Loss
from smq_core.model.partition_offsets import jump_over
from smq_core.partition_invariant import CountedSegment, partition_offsets_hold
from support.sim.checks.retention_checker import log_of
from support.sim.clients.reader import SimulatedReader
from support.sim.filer.chunk_chain import INDEX, LAYOUT, folder

if TYPE_CHECKING:
    from support.sim.histories.protocol import History


def final_log(history: History) -> list[Row]:
    """Every row that the chains contain, or did until they were removed, segment by segment."""
    return [row for name in history.checker.everyone for row in log_of(history.checker, name)]


def waiting_for(history: History) -> dict[str, str]:
    """What has not finished yet: subject -> words. Empty when nothing is in progress."""
    waiting: dict[str, str] = {}
    checker = history.checker
    for producer in history.producers:
        if producer.process.alive and not producer.stopped and not producer.idle:
            send_queues = {n: (x.state.value, len(x.in_flight), len(x.queue)) for n, x in producer.send_queues.items()}
            waiting[producer.name] = (
                f"has batches without an outcome: {send_queues}, {len(producer.waiting)} not routed"
            )
    for kafka_producer in history.kafka_producers:
        if not kafka_producer.idle:
            waiting[kafka_producer.name] = f"has batches without an ack: {kafka_producer.unacked()}"
    layout = history.store.truth(LAYOUT)
    if not isinstance(layout, Layout):
        return waiting | {"layout": "there is none"}
    for segment in layout.segments:
        if segment.phase.value != "open" or segment.successors:
            waiting[segment.name] = f"is still {segment.phase.value}"
        dead = [h.process.name for h in checker.hosted_segments.get(segment.name, []) if not h.process.alive]
        if dead:
            waiting[segment.name] = f"is still to be taken from {', '.join(dead)}"
    for name, hosted_segments in checker.hosted_segments.items():
        for hosted in hosted_segments:
            machine = hosted.machine
            if not hosted.process.alive or machine.outcome is not None:
                continue
            if name in checker.seals:
                waiting[name] = f"{hosted.process.name} does not know that it is sealed: {machine.state}"
            elif machine.chain_end != machine.end:
                waiting[name] = f"{hosted.process.name} has not written {machine.chain_end}..{machine.end}"
    removed = checker.retained.rows
    ends = {name: outcome.end for name, outcome in checker.seals.items() if name not in removed}
    for name in (s.name for s in layout.segments):
        ends.setdefault(name, checker.chain_ends.get(name, 0))
    if waiting:
        return waiting
    for reader in history.readers:
        if reader.process.alive:
            waiting |= _behind(reader.name, reader.rows, ends)
            if reader.from_start and (untold := _losses_to_report(history).keys() - reader.source.reported.keys()):
                waiting[reader.name] = f"is not told what is lost of {sorted(untold)}"
            waiting.update((reader.name, words) for words in _unreported(history, reader))
    for group in history.groups:
        read = [row for member in history.members if member.group == group for row in member.rows]
        waiting |= _behind(group, read, ends)
    return waiting


def _behind(name: str, read: Iterable[Row], ends: dict[str, int]) -> dict[str, str]:
    seen: dict[str, int] = {}
    for row in read:
        seen[row.segment] = max(seen.get(row.segment, 0), row.offset + 1)
    short = {s: (seen.get(s, 0), end) for s, end in ends.items() if seen.get(s, 0) < end}
    return {name: f"has not read to the end of {short}"} if short else {}


def check_all(history: History) -> None:
    """The invariants that look at a whole history."""
    checker = history.checker
    log = final_log(history)
    for name in checker.everyone.keys() - checker.retained.rows.keys():
        folder_ = folder(name)
        objects = {int(p.removeprefix(folder_)): history.store.truth(p).info for p in history.store.paths(folder_)}
        checker.must(inv.chain_is_whole(name, objects, sealed=name in checker.seals))
    checker.must(inv.acked_is_kept(checker.acked_rows, log, checker.losses.reported))
    crashed = {p.name for p in history.producers if p.stopped or not (p.process.alive or p.exited)}
    unknown = {m for p in history.producers for m in p.unknown}
    rejected = history.references.rejected if history.references is not None else set()
    checker.must(
        inv.Violation(2, row.segment, f"{row} was rejected and is in the log") for row in log if row.message in rejected
    )
    expected = [
        m
        for m in checker.sent_messages
        if m.producer not in crashed
        and m not in unknown
        and m not in rejected
        and not (m in checker.acked_rows and checker.acked_rows[m].segment in checker.losses.lost)
    ]
    checker.must(inv.each_once(log, expected))
    places = {row.message: row for row in log}
    for message, row in checker.acked_rows.items():
        if row.segment not in checker.losses.lost and row.offset >= 0 and places[message] != row:
            checker.must([inv.Violation(4, row.segment, f"{message} was acked at {row}, it is at {places[message]}")])
    for reader in history.readers:
        checker.must(inv.order_holds(_kept(history, reader.rows), checker.acked_at))
        checker.must(inv.delivered_is_stable(reader.rows, log, checker.losses.lost))
        expected_rows = {(row.segment, row.offset) for row in log if row.segment not in checker.retained.rows}
        missed = expected_rows - {(row.segment, row.offset) for row in reader.rows}
        if reader.process.alive and missed:
            checker.must([inv.Violation(12, reader.name, f"never read {sorted(missed)[:5]}")])
        twice = len(reader.rows) - len({(row.segment, row.offset) for row in reader.rows})
        checker.must([inv.Violation(2, reader.name, f"{twice} rows were read twice")] if twice else [])
        checker.must([inv.Violation(1, reader.name, words) for words in _unreported(history, reader)])
        checker.must([inv.Violation(1, reader.name, words) for words in _untrue(history, reader)])
        if reader.from_start and reader.process.alive:
            for name, lost in _losses_to_report(history).items():
                checker.must(inv.loss_is_reported(name, reader.name, lost, reader.source.reported.get(name)))
    if history.topic.spec.has_kafka_offsets:
        counted = _counted_segments(history, log)
        checker.must(partition_offsets_hold(counted))
        checker.kafka.check(log, counted)
    page = history.store.truth(INDEX)
    for entry in page.entries if page is not None else ():
        checker.must(inv.loss_is_reported(entry.name, "the index", checker.seals[entry.name].lost, entry.lost))
    checker.retained.check(history.readers)
    for member in history.members:
        checker.must(inv.delivered_is_stable(member.rows, log, checker.losses.lost))


def _counted_segments(history: History, log: Iterable[Row]) -> list[CountedSegment]:
    """All segments, with what their chunks and seals say of Kafka's offsets."""
    rows: dict[str, list[int]] = defaultdict(list)
    for row in log:
        rows[row.segment].append(row.message.partition)
    found = []
    for name in history.checker.everyone:
        outcome = history.checker.seals.get(name)
        chunks = [] if name in history.checker.retained.rows else history.checker.chain_of(name)
        recorded = [(it.info.end, it.info.partitions) for it in chunks if it.info.partitions is not None]
        if outcome is not None and outcome.partitions is not None:
            recorded.append((outcome.end, outcome.partitions))
        found.append(
            CountedSegment(
                name=name,
                number=number_of(name),
                range=range_of(name),
                rows=rows[name],
                recorded=recorded,
                jump=0 if outcome is None else jump_over(outcome.lost),
            )
        )
    return found


def _kept(history: History, read: Iterable[Row]) -> list[Row]:
    """Without what was lost after it was read: its producer may have sent it again."""
    lost = history.checker.losses.lost
    return [row for row in read if not (row.segment in lost and row.offset >= lost[row.segment])]


def _untrue(history: History, reader: SimulatedReader) -> list[str]:
    """A reader says that something is lost to it only when that is so: after a loss, or unread when it was removed."""
    lost, removed, read = history.checker.losses.lost, history.checker.retained.rows, _read_to(reader)
    return [
        f"{segment}: {loss} is not true: it has read up to {read.get(segment, 0)}"
        for segment, loss in reader.reader.losses
        if not (segment in lost and loss.start >= lost[segment])
        and not read.get(segment, 0) <= loss.start < len(removed.get(segment, ()))
    ]


def _unreported(history: History, reader: SimulatedReader) -> list[str]:
    """A reader that has read what is lost must say so, and one that was in the midst of a segment that was removed."""
    said = {segment for segment, _ in reader.reader.losses}
    lost, removed, read = history.checker.losses.lost, history.checker.retained.rows, _read_to(reader)
    beyond = {name for name, upto in read.items() if name in lost and upto > lost[name]}
    short = {name for name, upto in read.items() if name in removed and upto < len(removed[name])}
    return [f"read {name} up to {read[name]} and never reported its loss" for name in sorted((beyond | short) - said)]


def _losses_to_report(history: History) -> dict[str, Loss]:
    """The losses of all segments that are still there."""
    removed = history.checker.retained.rows
    return {
        name: outcome.lost
        for name, outcome in history.checker.seals.items()
        if outcome.lost is not None and name not in removed
    }


def _read_to(reader: SimulatedReader) -> dict[str, int]:
    """Of each segment the offset behind the last one that was read."""
    read: dict[str, int] = {}
    for row in reader.rows:
        read[row.segment] = max(read.get(row.segment, 0), row.offset + 1)
    return read
