"""A producer that began again at sequence 0, and whose segment was sealed by a replica that does not know of that."""

from __future__ import annotations

from smq_core.model.chunk_info import ProducerState, SealOutcome
from smq_core.model.entities import Durability, Phase, Replica, Segment
from smq_core.model.keyspace import KeyRange
from smq_core.producing.send_queue import SendQueue

SEGMENT = Segment(
    name="s",
    number=0,
    range=KeyRange(0, 8),
    phase=Phase.OPEN,
    durability=Durability.REPLICATED,
    replicas=(Replica("b", "i", "a"),),
)


def forgotten_and_sending_again() -> SendQueue:
    """The log's batches 0 to 5 at offsets 0 to 5 were acked. The primary forgot them, ends at 20, and got batch 0."""
    queue = SendQueue(SEGMENT)
    queue.queue.extend(range(6))
    queue.opened(None)
    while queue.next_to_send() is not None:
        pass
    queue.acked(0, range(6))
    queue.stream_closed()
    queue.opened(None, end=20, forgotten_upto=6)
    queue.queue.append("new")
    assert queue.next_to_send() is not None
    return queue


def outcome(end: int, state: ProducerState | None, forgotten_upto: int = 0) -> SealOutcome:
    return SealOutcome(
        segment="s", end=end, producers={} if state is None else {"p": state}, forgotten_upto=forgotten_upto
    )


def test_the_state_of_before_does_not_deliver_a_new_batch() -> None:
    """A follower sealed the segment without the entry that forgot the producer."""
    queue = forgotten_and_sending_again()
    result = queue.resolve(outcome(15, ProducerState(epoch=0, last_sequence=5, recent=tuple(range(6)))), "p", 0)
    assert (result.delivered, result.resend, result.unknown) == ([], ["new"], [])


def test_the_state_of_the_new_batch_delivers_it() -> None:
    queue = forgotten_and_sending_again()
    result = queue.resolve(outcome(30, ProducerState(epoch=0, last_sequence=0, recent=(20,)), forgotten_upto=6), "p", 0)
    assert [(it.sub_batch, it.first_offset) for it in result.delivered] == [("new", 20)]
    assert (result.resend, result.unknown) == ([], [])


def test_a_batch_that_is_not_in_the_log_is_sent_again() -> None:
    """The entry that forgot the producer is in the log, the new batch is not."""
    queue = forgotten_and_sending_again()
    result = queue.resolve(outcome(20, None, forgotten_upto=6), "p", 0)
    assert (result.delivered, result.resend, result.unknown) == ([], ["new"], [])
