"""A send queue and the batches that its primary rejects: these never enter the log, and all others do, in order."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from smq_core.model.entities import Durability, Phase, Replica, Segment
from smq_core.model.keyspace import KeyRange
from smq_core.producing.send_queue import SendQueue


def queue_of(batches: int) -> SendQueue:
    primary = (Replica("b", "i", "a"),)
    segment = Segment(
        name="s", number=0, range=KeyRange(0, 8), phase=Phase.OPEN, durability=Durability.REPLICATED, replicas=primary
    )
    return SendQueue(segment, queue=deque(range(batches)))


def test_batches_after_a_rejected_one_move_up_and_are_sent_again():
    queue = queue_of(4)
    queue.opened(None)
    assert [queue.next_to_send().sequence for _ in range(3)] == [0, 1, 2]
    assert queue.rejected(1) == 1
    again = [queue.next_to_send() for _ in range(2)]
    assert [(it.sequence, it.sub_batch, it.rejections) for it in again] == [(1, 2, 1), (2, 3, 1)]
    assert [it.sub_batch for it in queue.acked(0, [0, 5, 6])] == [0, 2, 3]


def test_an_unknown_or_late_rejection_changes_nothing():
    queue = queue_of(2)
    queue.opened(None)
    queue.next_to_send()
    assert queue.rejected(1) is None
    queue.stream_closed()
    assert queue.rejected(0) is None
    assert (len(queue.in_flight), queue.next_sequence, queue.rejections) == (1, 1, 0)


@given(
    bad=st.sets(st.integers(0, 11)),
    steps=st.lists(st.sampled_from(["send", "receive", "reply", "break"]), max_size=200),
)
def test_what_is_not_rejected_is_in_the_log_once_and_in_order(bad: set[int], steps: list[str]):
    queue = queue_of(12)
    log: list[int] = []
    up: deque[tuple[int, int, object]] = deque()
    down: deque[tuple[str, int]] = deque()
    seen = 0
    rejected: list[object] = []

    def perform(step: str) -> None:
        nonlocal seen
        if step == "break":
            queue.stream_closed()
            up.clear(), down.clear()
            seen = 0
            queue.opened(len(log) - 1 if log else None, end=len(log))
        elif step == "send" and (sent := queue.next_to_send()) is not None:
            up.append((sent.sequence, sent.rejections, sent.sub_batch))
        elif step == "receive" and up:
            sequence, rejections, sub_batch = up.popleft()
            if rejections < seen:
                return
            assert rejections == seen and sequence <= len(log), "a batch after a gap"
            if sequence < len(log):
                down.append(("ack", sequence))
            elif sub_batch in bad:
                seen += 1
                down.append(("rejected", sequence))
            else:
                log.append(sub_batch)
                down.append(("ack", sequence))
        elif step == "reply" and down:
            what, sequence = down.popleft()
            if what == "ack":
                queue.acked(sequence, [sequence])
            else:
                rejected.append(queue.rejected(sequence))

    for step in ["break", *steps, *["send", "receive", "reply"] * 60]:
        perform(step)
    assert log == [batch for batch in range(12) if batch not in bad]
    assert sorted(rejected) == sorted(bad)
    assert queue.idle
