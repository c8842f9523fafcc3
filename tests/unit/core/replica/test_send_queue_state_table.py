"""A producer's send queue in every state with every input."""

from __future__ import annotations

import pytest

from smq_core.errors import ProducerFenced, SequenceGap
from smq_core.model.chunk_info import ProducerState, SealOutcome
from smq_core.model.entities import Durability, Phase, Replica, Segment
from smq_core.model.keyspace import KeyRange
from smq_core.producing.send_queue import SendQueue, SendQueueState
from support.state_table import NOTHING, Expected, StateTable, does

SEGMENT = Segment(
    name="s",
    number=0,
    range=KeyRange(0, 8),
    phase=Phase.OPEN,
    durability=Durability.REPLICATED,
    replicas=(Replica("b", "i", "a"),),
)


def outcome(known: ProducerState | None, forgotten_upto: int = 0) -> SealOutcome:
    return SealOutcome(
        segment="s", end=50, producers={} if known is None else {"p": known}, forgotten_upto=forgotten_upto
    )


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
    send_queue.resolve(outcome(ProducerState(epoch=0, last_sequence=1, recent=())), "p", 0, "i")
    return send_queue


NEW, IDLE, SENDING, BROKEN, RESENDING, DONE = "new", "idle", "sending", "broken", "resending", "done"
STATES = {NEW: new, IDLE: idle, SENDING: sending, BROKEN: broken, RESENDING: resending, DONE: done}
EVERYWHERE = tuple(STATES)


def next_to_send(it: SendQueue) -> object:
    sent = it.next_to_send()
    return sent and (sent.sequence, sent.sub_batch)


def acked(it: SendQueue, first: int, offsets: list[int | None]) -> object:
    return [(found.sub_batch, found.first_offset) for found in it.acked(first, offsets)]


def resolve(it: SendQueue, known: ProducerState | None, *, epoch: int = 0, forgotten_upto: int = 0) -> object:
    """What was delivered, what to send again, and what is unknown."""
    found = it.resolve(outcome(known, forgotten_upto), "p", epoch, "i")
    return [delivered.sub_batch for delivered in found.delivered], found.resend, found.unknown


INPUTS = {
    "next to send": next_to_send,
    "opened at a replica without the producer": lambda it: it.opened(None, end=50),
    "opened at a replica that may have forgotten the acked": lambda it: it.opened(None, end=50, forgotten_upto=1),
    "opened at a replica that may have forgotten those in flight": lambda it: it.opened(None, end=50, forgotten_upto=9),
    "opened at a replica with all acked": lambda it: it.opened(0),
    "opened at a replica with one in flight": lambda it: it.opened(1),
    "opened at a replica with a batch of another producer": lambda it: it.opened(9),
    "the first in flight is acked": lambda it: acked(it, 1, [10]),
    "both in flight are acked": lambda it: acked(it, 1, [10, None]),
    "a late ack": lambda it: acked(it, 0, [0]),
    "an ack of what was never sent": lambda it: acked(it, 7, [70]),
    "the stream closes": lambda it: it.stream_closed(),
    "the outcome without the producer": lambda it: resolve(it, None),
    "the outcome with the first in flight": lambda it: resolve(it, ProducerState(epoch=0, last_sequence=1, recent=())),
    "the outcome without the producer, which may be forgotten": lambda it: resolve(it, None, forgotten_upto=9),
    "the outcome with what was inherited": lambda it: resolve(
        it, ProducerState(epoch=0, last_sequence=-1, recent=(), instance="i")
    ),
    "the outcome with an older epoch": lambda it: resolve(
        it, ProducerState(epoch=0, last_sequence=9, recent=()), epoch=1
    ),
    "the outcome with an older epoch, which may have come after this one was forgotten": lambda it: resolve(
        it, ProducerState(epoch=0, last_sequence=9, recent=()), epoch=1, forgotten_upto=9
    ),
    "the outcome with a newer epoch": lambda it: resolve(it, ProducerState(epoch=1, last_sequence=0, recent=())),
    "the outcome with another instance": lambda it: resolve(
        it, ProducerState(epoch=0, last_sequence=1, recent=(), instance="j")
    ),
    "no outcome is needed": lambda it: it.resolve(None, "p", 0, "i").resend,
}


def observe(it: SendQueue) -> dict[str, object]:
    return {
        "state": it.state,
        "next_sequence": it.next_sequence,
        "queue": list(it.queue),
        "in_flight": [sent.sequence for sent in it.in_flight],
        "to_resend": it.to_resend,
        "log_start": it.log_start,
        "idle": it.idle,
    }


STREAMING = SendQueueState.STREAMING


def resolved(delivered: list[str], resend: list[str], unknown: list[str]) -> dict[str | tuple[str, ...], Expected]:
    """What an outcome does to a queue that has one or two in flight. One that was never sent is sent elsewhere."""
    found = (delivered, resend, unknown)
    ended = {"state": SendQueueState.DONE, "queue": [], "in_flight": [], "idle": True}
    return {
        NEW: does(([], ["a", "b"], []), state=SendQueueState.DONE, queue=[], idle=True),
        IDLE: does(([], [], []), state=SendQueueState.DONE),
        (SENDING, BROKEN): does(found, **ended),
        RESENDING: does(found, to_resend=0, **ended),
        DONE: does(([], [], [])),
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
            NEW: does([], state=STREAMING, log_start=50),
            (IDLE, SENDING, BROKEN, RESENDING): SequenceGap,
            DONE: does([]),
        },
        "opened at a replica that may have forgotten the acked": {
            # Nothing is unknown: what is in flight would begin above what was forgotten. It gets sequences from 0.
            NEW: does([], state=STREAMING, log_start=50),
            IDLE: does([], next_sequence=0, log_start=50),
            SENDING: does([], next_sequence=2, in_flight=[0, 1], to_resend=2, log_start=50),
            BROKEN: does([], state=STREAMING, next_sequence=2, in_flight=[0, 1], to_resend=2, log_start=50),
            RESENDING: does([], next_sequence=2, in_flight=[0, 1], to_resend=2, log_start=50),
            DONE: does([]),
        },
        "opened at a replica that may have forgotten those in flight": {
            NEW: does([], state=STREAMING, log_start=50),
            IDLE: does([], next_sequence=0, log_start=50),
            SENDING: does(["b", "c"], next_sequence=0, in_flight=[], log_start=50),
            BROKEN: does(["b", "c"], state=STREAMING, next_sequence=0, in_flight=[], log_start=50),
            RESENDING: does(["b", "c"], next_sequence=0, in_flight=[], to_resend=0, log_start=50),
            DONE: does([]),
        },
        "opened at a replica with all acked": {
            NEW: ProducerFenced,
            (IDLE, DONE): does([]),
            SENDING: does([], to_resend=2),
            RESENDING: does([], to_resend=2),
            BROKEN: does([], state=STREAMING, to_resend=2),
        },
        "opened at a replica with one in flight": {
            (NEW, IDLE): ProducerFenced,
            (SENDING, RESENDING): does([], to_resend=2),
            BROKEN: does([], state=STREAMING, to_resend=2),
            DONE: does([]),
        },
        "opened at a replica with a batch of another producer": {
            (NEW, IDLE, SENDING, BROKEN, RESENDING): ProducerFenced,
            DONE: does([]),
        },
        "the first in flight is acked": {
            (NEW, IDLE, DONE): does([]),
            (SENDING, BROKEN, RESENDING): does([("b", 10)], in_flight=[2], log_start=11),
        },
        "both in flight are acked": {
            (NEW, IDLE, DONE): does([]),
            (SENDING, BROKEN): does([("b", 10), ("c", None)], in_flight=[], log_start=11),
            RESENDING: does([("b", 10), ("c", None)], in_flight=[], to_resend=0, log_start=11),
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
        "the outcome without the producer": resolved([], ["b", "c", "d"], []),
        "the outcome with the first in flight": resolved(["b"], ["c", "d"], []),
        "the outcome without the producer, which may be forgotten": resolved([], ["d"], ["b", "c"]),
        "the outcome with what was inherited": resolved([], ["b", "c", "d"], []),
        "the outcome with an older epoch": resolved([], ["b", "c", "d"], []),
        "the outcome with an older epoch, which may have come after this one was forgotten": resolved(
            [], ["d"], ["b", "c"]
        ),
        "the outcome with a newer epoch": {
            EVERYWHERE: ProducerFenced,
        },
        "the outcome with another instance": {
            EVERYWHERE: ProducerFenced,
        },
        "no outcome is needed": {
            NEW: does(["a", "b"], state=SendQueueState.DONE, queue=[], idle=True),
            IDLE: does([], state=SendQueueState.DONE),
            (SENDING, BROKEN): does(["b", "c", "d"], state=SendQueueState.DONE, queue=[], in_flight=[], idle=True),
            RESENDING: does(["b", "c", "d"], state=SendQueueState.DONE, queue=[], in_flight=[], to_resend=0, idle=True),
            DONE: does([]),
        },
    },
)


def test_the_table_is_complete() -> None:
    TABLE.check_complete()


@pytest.mark.parametrize(("state", "input_"), TABLE.pairs())
def test_a_send_queue_in_every_state_with_every_input(state: str, input_: str) -> None:
    TABLE.check(state, input_)
