"""Acks of consecutive sequences are sent in one reply."""

from smq_broker.producers.replies import UNKNOWN_OFFSET, group_acks
from smq_core.replica.log_entries import Ack, BatchId


def ack(sequence: int, offset: int | None) -> Ack:
    return Ack(None, BatchId("p", 1, sequence), offset)


def reply_ranges(acks: list[Ack]) -> list[tuple[int, list[int]]]:
    return [(r.acks.first_sequence, list(r.acks.first_offsets)) for r in group_acks(acks)]


def test_consecutive_ones_are_one_reply():
    assert reply_ranges([ack(3, 30), ack(4, 40), ack(5, 50)]) == [(3, [30, 40, 50])]


def test_each_gap_begins_a_reply():
    assert reply_ranges([ack(3, 30), ack(5, 50), ack(0, 0), ack(1, 10)]) == [(3, [30]), (5, [50]), (0, [0, 10])]


def test_an_offset_that_nobody_remembers():
    assert reply_ranges([ack(0, None)]) == [(0, [UNKNOWN_OFFSET])]


def test_no_acks_make_no_replies():
    assert reply_ranges([]) == []
