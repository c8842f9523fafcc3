"""A producer's send queue in every state with every input."""

from __future__ import annotations

import pytest

from smq_core.errors import ProducerFenced, SequenceGap
from smq_core.model.entities import Durability, Phase, ProducerState, Replica, Segment
from smq_core.model.keyspace import KeyRange
from smq_core.producing.send_queue import SendQueue, SendQueueState
from support.state_table import NOTHING, StateTable, does

SEGMENT = Segment("s", 0, KeyRange(0, 8), Phase.OPEN, Durability.REPLICATED, (Replica("b", "i", "a"),))


def new() -> SendQueue:
    """Two sub-batches wait; no stream is open."""
    send_queue = SendQueue(SEGMENT)
    send_queue.queue.extend(["a", "b"])
    return send_queue


def idle() -> SendQueue:
    """A stream is open; one sub-batch was sent and acked."""
    send_queue = SendQueue(SEGMENT)
    send_queue.opened(None)
    send_queue.queue.append("a")
    send_queue.next_to_send()
    send_queue.acked(0, [0])
    return send_queue


def sending() -> SendQueue:
    """One is acked, two are in flight, one waits."""
    send_queue = idle()
    send_queue.queue.extend(["b", "c", "d"])
    send_queue.next_to_send()
    send_queue.next_to_send()
    return send_queue


def broken() -> SendQueue:
    send_queue = sending()
    send_queue.stream_closed()
    return send_queue


def resending() -> SendQueue:
    """The next stream is open, and one of the two in flight is sent again."""
    send_queue = broken()
    send_queue.opened(0)
    send_queue.next_to_send()
    return send_queue


def done() -> SendQueue:
    send_queue = sending()
    send_queue.resolve(ProducerState(0, 1, ()), 0)
    return send_queue


NEW, IDLE, SENDING, BROKEN, RESENDING, DONE = "new", "idle", "sending", "broken", "resending", "done"
STATES = {NEW: new, IDLE: idle, SENDING: sending, BROKEN: broken, RESENDING: resending, DONE: done}
EVERYWHERE = tuple(STATES)


def next_to_send(it: SendQueue) -> object:
    sent = it.next_to_send()
    return sent and (sent.sequence, sent.sub_batch)


def acked(it: SendQueue, first: int, offsets: list[int | None]) -> object:
    return [(found.sub_batch, found.first_offset) for found in it.acked(first, offsets)]


def resolve(it: SendQueue, known: ProducerState | None) -> object:
    delivered, resend = it.resolve(known, 0)
    return [found.sub_batch for found in delivered], resend


INPUTS = {
    "next to send": next_to_send,
    "opened at a replica without the producer": lambda it: it.opened(None),
    "opened at a replica with all acked": lambda it: it.opened(0),
    "opened at a replica with one in flight": lambda it: it.opened(1),
    "opened at a replica with a batch of another producer": lambda it: it.opened(9),
    "the first in flight is acked": lambda it: acked(it, 1, [10]),
    "both in flight are acked": lambda it: acked(it, 1, [10, None]),
    "a late ack": lambda it: acked(it, 0, [0]),
    "an ack of what was never sent": lambda it: acked(it, 7, [70]),
    "the stream closes": lambda it: it.stream_closed(),
    "the outcome without the producer": lambda it: resolve(it, None),
    "the outcome with the first in flight": lambda it: resolve(it, ProducerState(0, 1, ())),
    "the outcome with an older epoch": lambda it: SendQueue.resolve(it, ProducerState(0, 9, ()), 1)[1],
    "the outcome with a newer epoch": lambda it: resolve(it, ProducerState(1, 0, ())),
}


def observe(it: SendQueue) -> dict[str, object]:
    return {
        "state": it.state,
        "next_sequence": it.next_sequence,
        "queue": list(it.queue),
        "in_flight": [sent.sequence for sent in it.in_flight],
        "to_resend": it.to_resend,
        "idle": it.idle,
    }


# After the outcome nothing is sent any more: a stream that opens late is ignored.
TABLE = StateTable(
    STATES,
    INPUTS,
    observe,
    {
        "next to send": {
            (NEW, IDLE, BROKEN, DONE): NOTHING,
            SENDING: does((3, "d"), next_sequence=4, queue=[], in_flight=[1, 2, 3]),
            RESENDING: does((2, "c"), to_resend=0),
        },
        "opened at a replica without the producer": {
            NEW: does(state=SendQueueState.STREAMING),
            IDLE: does(next_sequence=0),
            (SENDING, BROKEN, RESENDING): SequenceGap,
            DONE: NOTHING,
        },
        "opened at a replica with all acked": {
            NEW: ProducerFenced,
            (IDLE, DONE): NOTHING,
            (SENDING, RESENDING): does(to_resend=2),
            BROKEN: does(state=SendQueueState.STREAMING, to_resend=2),
        },
        "opened at a replica with one in flight": {
            (NEW, IDLE): ProducerFenced,
            (SENDING, RESENDING): does(to_resend=2),
            BROKEN: does(state=SendQueueState.STREAMING, to_resend=2),
            DONE: NOTHING,
        },
        "opened at a replica with a batch of another producer": {
            (NEW, IDLE, SENDING, BROKEN, RESENDING): ProducerFenced,
            DONE: NOTHING,
        },
        "the first in flight is acked": {
            (NEW, IDLE, DONE): does([]),
            (SENDING, BROKEN, RESENDING): does([("b", 10)], in_flight=[2]),
        },
        "both in flight are acked": {
            (NEW, IDLE, DONE): does([]),
            (SENDING, BROKEN): does([("b", 10), ("c", None)], in_flight=[]),
            RESENDING: does([("b", 10), ("c", None)], in_flight=[], to_resend=0),
        },
        "a late ack": {
            EVERYWHERE: does([]),
        },
        "an ack of what was never sent": {
            EVERYWHERE: does([]),
        },
        "the stream closes": {
            (NEW, BROKEN, DONE): NOTHING,
            (IDLE, SENDING, RESENDING): does(state=SendQueueState.CLOSED),
        },
        "the outcome without the producer": {
            NEW: does(([], ["a", "b"]), state=SendQueueState.DONE, queue=[], idle=True),
            IDLE: does(([], []), state=SendQueueState.DONE),
            (SENDING, BROKEN): does(
                ([], ["b", "c", "d"]), state=SendQueueState.DONE, queue=[], in_flight=[], idle=True
            ),
            RESENDING: does(
                ([], ["b", "c", "d"]), state=SendQueueState.DONE, queue=[], in_flight=[], to_resend=0, idle=True
            ),
            DONE: does(([], [])),
        },
        "the outcome with the first in flight": {
            NEW: does(([], ["a", "b"]), state=SendQueueState.DONE, queue=[], idle=True),
            IDLE: does(([], []), state=SendQueueState.DONE),
            (SENDING, BROKEN): does((["b"], ["c", "d"]), state=SendQueueState.DONE, queue=[], in_flight=[], idle=True),
            RESENDING: does(
                (["b"], ["c", "d"]), state=SendQueueState.DONE, queue=[], in_flight=[], to_resend=0, idle=True
            ),
            DONE: does(([], [])),
        },
        "the outcome with an older epoch": {
            NEW: does(["a", "b"], state=SendQueueState.DONE, queue=[], idle=True),
            IDLE: does([], state=SendQueueState.DONE),
            (SENDING, BROKEN): does(["b", "c", "d"], state=SendQueueState.DONE, queue=[], in_flight=[], idle=True),
            RESENDING: does(["b", "c", "d"], state=SendQueueState.DONE, queue=[], in_flight=[], to_resend=0, idle=True),
            DONE: does([]),
        },
        "the outcome with a newer epoch": {
            EVERYWHERE: ProducerFenced,
        },
    },
)


def test_the_table_is_complete() -> None:
    TABLE.check_complete()


@pytest.mark.parametrize(("state", "input_"), TABLE.pairs())
def test_a_send_queue_in_every_state_with_every_input(state: str, input_: str) -> None:
    TABLE.check(state, input_)
