"""A segment's replica in every state with every input."""

from __future__ import annotations

import pytest

from smq_core.errors import NotOpenYet, OffsetMismatch, ProducerFenced, SegmentSealed, SequenceGap, Unavailable
from smq_core.model.chunk_info import ProducerState, SealOutcome
from smq_core.model.entities import Durability
from smq_core.model.keyspace import KeyRange
from smq_core.replica.log_entries import BatchId, ChunkWrite, Entry, IncomingBatch, ReplicaConfig, ReplicationMessage
from smq_core.replica.producer_sessions import OpenedProducer
from smq_core.replica.segment_replica import ReplicaState, SegmentReplica
from support.state_table import NOTHING, StateTable, does

CREDIT = 1000
NOW = 10
OUTCOME = SealOutcome(segment="s", end=4)


def batch(sequence: int, instance: str = "i") -> IncomingBatch:
    """Two rows, twenty bytes."""
    return IncomingBatch(
        id=BatchId("a", 0, sequence, instance), rows=2, nbytes=20, partition_min=2, partition_max=5, payload=None
    )


def entry(sequence: int) -> Entry:
    return Entry(first=2 * sequence, batch=batch(sequence), appended=sequence)


def new(me: str, predecessors: tuple[str, ...] = ()) -> SegmentReplica:
    config = ReplicaConfig(
        segment="s",
        range=KeyRange(2, 6),
        incarnation=me,
        replicas=("p", "f"),
        durability=Durability.REPLICATED,
        predecessors=predecessors,
    )
    return SegmentReplica(config)


def waiting() -> SegmentReplica:
    primary = new("p", predecessors=("x",))
    primary.follower_connected("f", 0, CREDIT)
    primary.open_producer("stream", "a", 0, "i")
    return primary


def open_primary() -> SegmentReplica:
    """Three batches: the follower was sent two and has confirmed one, whose ack is due."""
    primary = new("p")
    primary.follower_connected("f", 0, CREDIT)
    primary.open_producer("stream", "a", 0, "i")
    for sequence in range(2):
        primary.append("stream", batch(sequence), now=sequence)
    primary.replication_for("f")
    primary.append("stream", batch(2), now=2)
    primary.follower_acked("f", 2)
    return primary


def writing() -> SegmentReplica:
    primary = open_primary()
    assert primary.next_chunk(NOW, force=True) is not None
    return primary


def fenced() -> SegmentReplica:
    primary = writing()
    primary.fence()
    return primary


def fenced_while_waiting() -> SegmentReplica:
    primary = waiting()
    primary.fence()
    return primary


def sealed() -> SegmentReplica:
    primary = fenced()
    primary.sealed(SealOutcome(segment="s", end=6))
    return primary


def follower() -> SegmentReplica:
    """Holds two batches, of which one is below the watermark."""
    replica = new("f")
    replica.replicate(
        ReplicationMessage(base_offset=0, entries=(entry(0), entry(1)), watermark=2, chain_end=0, credit=0)
    )
    return replica


def fenced_follower() -> SegmentReplica:
    replica = follower()
    replica.fence()
    return replica


def sealed_follower() -> SegmentReplica:
    replica = fenced_follower()
    replica.sealed(SealOutcome(segment="s", end=6))
    return replica


WAITING, OPEN, WRITING, FENCED, CUT_OFF, SEALED = "waiting", "open", "open, writing", "fenced", "fenced early", "sealed"
F_OPEN, F_FENCED, F_SEALED = "follower", "fenced follower", "sealed follower"

STATES = {
    WAITING: waiting,
    OPEN: open_primary,
    WRITING: writing,
    FENCED: fenced,
    CUT_OFF: fenced_while_waiting,
    SEALED: sealed,
    F_OPEN: follower,
    F_FENCED: fenced_follower,
    F_SEALED: sealed_follower,
}

FIRST_CHUNK = ChunkWrite(first=0, entries=(entry(0),), producers={})


INHERITED = ProducerState(epoch=1, last_sequence=-1, recent=(), instance="k", appended=0)


def offsets(entries: object) -> list[int]:
    return [e.first for e in entries]  # type: ignore[attr-defined]


INPUTS = {
    "a predecessor is sealed": lambda it: it.predecessor_sealed(
        SealOutcome(segment="x", end=2, producers={"c": INHERITED})
    ),
    "a predecessor without producers is sealed": lambda it: it.predecessor_sealed(
        SealOutcome(segment="x", end=0, uninherited=("w",))
    ),
    "another predecessor is sealed": lambda it: it.predecessor_sealed(SealOutcome(segment="y", end=0)),
    "a producer opens": lambda it: it.open_producer("new stream", "a", 0, "i"),
    "a new producer opens": lambda it: it.open_producer("new stream", "b", 0, "i"),
    "another instance opens": lambda it: it.open_producer("new stream", "a", 0, "j"),
    "a producer closes": lambda it: it.close_producer("stream", "a"),
    "a stream closes that never opened": lambda it: it.close_producer("new stream", "a"),
    "the next batch": lambda it: (e := it.append("stream", batch(3), NOW)) and e.first,
    "the next batch on a stream that never opened": lambda it: it.append("new stream", batch(3), NOW),
    "the next batch of another instance": lambda it: it.append("stream", batch(3, "j"), NOW),
    "a repeated batch": lambda it: it.append("stream", batch(0), NOW),
    "take acks": lambda it: [ack.id.sequence for ack in it.take_acks()],
    "available_bytes": lambda it: it.available_bytes(),
    "the follower connects at 0": lambda it: it.follower_connected("f", 0, CREDIT),
    "the follower connects beyond the end": lambda it: it.follower_connected("f", 8, CREDIT),
    "the follower disconnects": lambda it: it.follower_disconnected("f"),
    "the follower grants less": lambda it: it.follower_granted("f", 100),
    "the follower confirms": lambda it: it.follower_acked("f", 4),
    "pending replication": lambda it: it.pending_replication("f"),
    "replication": lambda it: (m := it.replication_for("f")) and (m.base_offset, offsets(m.entries), m.watermark),
    "a message for a follower": lambda it: it.replicate(
        ReplicationMessage(base_offset=4, entries=(entry(2),), watermark=4, chain_end=0, credit=0)
    ),
    "a message beyond the end": lambda it: it.replicate(
        ReplicationMessage(base_offset=8, entries=(entry(4),), watermark=4, chain_end=0, credit=0)
    ),
    "next chunk": lambda it: (c := it.next_chunk(NOW)) and (c.first, offsets(c.entries)),
    "next chunk now": lambda it: (c := it.next_chunk(NOW, force=True)) and (c.first, offsets(c.entries)),
    "a chunk is written": lambda it: it.chunk_written(FIRST_CHUNK),
    "a chunk fails": lambda it: it.chunk_failed(),
    "a chunk of another writer": lambda it: it.chunk_conflict(),
    "fence": lambda it: it.fence(),
    "seal": lambda it: it.sealed(OUTCOME),
    "read": lambda it: offsets(it.readable(0)),
    "keep recent bytes": lambda it: it.keep_recent_bytes(100),
}


def observe(it: SegmentReplica) -> dict[str, object]:
    found = {"state": it.state, "end": it.end, "watermark": it.watermark, "chain_end": it.chain_end}
    found |= {"tail_bytes": it.tail_bytes, "tail": len(it.tail), "recent": it.recent.limit_bytes}
    found |= {"writing": it.chunk_in_flight, "outcome": it.outcome, "unread": set(it.unread_predecessors)}
    found |= {"producers": dict(it.sessions.producers.snapshot()), "inherits": it.inherits}
    found |= {"streams": {name: list(streams.unclosed) for name, streams in it.sessions._streams.items()}}
    if it.config.is_primary:
        link = it._followers["f"]
        found |= {"sent": link.sent, "confirmed": link.acked, "credit": link.credit}
    return found


PRIMARY = (WAITING, OPEN, WRITING, FENCED, CUT_OFF, SEALED)
FOLLOWER = (F_OPEN, F_FENCED, F_SEALED)
EVERYWHERE = PRIMARY + FOLLOWER
BOTH = {"a": ["stream", "new stream"]}
ONE_EACH = {"a": ["stream"], "b": ["new stream"]}
CLOSED = (FENCED, CUT_OFF, SEALED, F_FENCED, F_SEALED)

# Only a primary has followers, so what concerns one raises KeyError at a follower. The machine does not check its role
# again where brokers do: they refuse producers at a follower, and messages for a follower at a primary.
TABLE = StateTable(
    STATES,
    INPUTS,
    observe,
    {
        "a predecessor is sealed": {
            WAITING: does(state=ReplicaState.OPEN, unread=set(), producers={"c": INHERITED}, inherits=True),
            (OPEN, WRITING, FENCED, SEALED, F_OPEN, F_FENCED, F_SEALED): NOTHING,
            CUT_OFF: does(unread=set(), producers={"c": INHERITED}, inherits=True),
        },
        "a predecessor without producers is sealed": {
            (WAITING, CUT_OFF): does(unread={"w"}),
            (OPEN, WRITING, FENCED, SEALED, F_OPEN, F_FENCED, F_SEALED): NOTHING,
        },
        "another predecessor is sealed": {
            EVERYWHERE: NOTHING,
        },
        "a producer opens": {
            WAITING: does(OpenedProducer(None), streams=BOTH),
            (OPEN, WRITING): does(OpenedProducer(2, end=6), streams=BOTH),
            CLOSED: SegmentSealed,
            F_OPEN: does(OpenedProducer(1, end=4), streams={"a": ["new stream"]}),
        },
        "a new producer opens": {
            WAITING: does(OpenedProducer(None), streams=ONE_EACH),
            (OPEN, WRITING): does(OpenedProducer(None, end=6), streams=ONE_EACH),
            CLOSED: SegmentSealed,
            F_OPEN: does(OpenedProducer(None, end=4), streams={"b": ["new stream"]}),
        },
        "another instance opens": {
            WAITING: does(OpenedProducer(None), streams=BOTH),
            (OPEN, WRITING, F_OPEN): ProducerFenced,
            CLOSED: SegmentSealed,
        },
        "a producer closes": {
            (WAITING, OPEN, WRITING, FENCED, CUT_OFF, SEALED): does(streams={}),
            FOLLOWER: NOTHING,
        },
        "a stream closes that never opened": {
            EVERYWHERE: NOTHING,
        },
        "the next batch": {
            WAITING: NotOpenYet,
            (OPEN, WRITING): does(
                6,
                end=8,
                tail_bytes=80,
                tail=4,
                producers={
                    "a": ProducerState(epoch=0, last_sequence=3, recent=(0, 2, 4, 6), instance="i", appended=NOW)
                },
            ),
            CLOSED: SegmentSealed,
            F_OPEN: SequenceGap,
        },
        "the next batch on a stream that never opened": {
            WAITING: NotOpenYet,
            (OPEN, WRITING): Unavailable,
            CLOSED: SegmentSealed,
            F_OPEN: SequenceGap,
        },
        "the next batch of another instance": {
            WAITING: NotOpenYet,
            (OPEN, WRITING, F_OPEN): ProducerFenced,
            CLOSED: SegmentSealed,
        },
        "a repeated batch": {
            WAITING: NotOpenYet,
            (OPEN, WRITING, F_OPEN): NOTHING,
            CLOSED: SegmentSealed,
        },
        "take acks": {
            (WAITING, FENCED, CUT_OFF, SEALED, F_OPEN, F_FENCED, F_SEALED): does([]),
            (OPEN, WRITING): does([0]),
        },
        "available_bytes": {
            (WAITING, CUT_OFF, SEALED): does(1000),
            (OPEN, WRITING, FENCED): does(940),
            FOLLOWER: does(1 << 62),
        },
        "the follower connects at 0": {
            (WAITING, CUT_OFF): NOTHING,
            (OPEN, WRITING, FENCED, SEALED): does(sent=0),
            FOLLOWER: KeyError,
        },
        "the follower connects beyond the end": {
            EVERYWHERE: OffsetMismatch,
        },
        "the follower disconnects": {
            PRIMARY: does(sent=None),
            FOLLOWER: KeyError,
        },
        "the follower grants less": {
            PRIMARY: does(credit=100),
            FOLLOWER: KeyError,
        },
        "the follower confirms": {
            (WAITING, CUT_OFF): NOTHING,
            (OPEN, WRITING): does(watermark=4, confirmed=4),
            (FENCED, SEALED): does(confirmed=4),
            FOLLOWER: KeyError,
        },
        "pending replication": {
            (WAITING, FENCED, CUT_OFF, SEALED): NOTHING,
            (OPEN, WRITING): does("entries"),
            FOLLOWER: KeyError,
        },
        "replication": {
            (WAITING, FENCED, CUT_OFF, SEALED): NOTHING,
            (OPEN, WRITING): does((4, [4], 2), sent=6),
            FOLLOWER: KeyError,
        },
        "a message for a follower": {
            WAITING: OffsetMismatch,
            (OPEN, WRITING): does(6, watermark=4),
            CLOSED: SegmentSealed,
            F_OPEN: does(
                6,
                end=6,
                watermark=4,
                tail_bytes=60,
                tail=3,
                producers={"a": ProducerState(epoch=0, last_sequence=2, recent=(0, 2, 4), instance="i", appended=2)},
            ),
        },
        "a message beyond the end": {
            (WAITING, OPEN, WRITING, F_OPEN): OffsetMismatch,
            CLOSED: SegmentSealed,
        },
        "next chunk": {
            EVERYWHERE: NOTHING,
        },
        "next chunk now": {
            (WAITING, WRITING, FENCED, CUT_OFF, SEALED, F_OPEN, F_FENCED, F_SEALED): NOTHING,
            OPEN: does((0, [0]), writing=True),
        },
        "a chunk is written": {
            (WAITING, CUT_OFF, F_SEALED): NOTHING,
            OPEN: does(chain_end=2, tail_bytes=40, tail=2),
            (WRITING, FENCED): does(chain_end=2, tail_bytes=40, tail=2, writing=False),
            SEALED: does(writing=False),
            (F_OPEN, F_FENCED): does(chain_end=2, tail_bytes=20, tail=1),
        },
        "a chunk fails": {
            (WAITING, OPEN, CUT_OFF, F_OPEN, F_FENCED, F_SEALED): NOTHING,
            (WRITING, FENCED, SEALED): does(writing=False),
        },
        "a chunk of another writer": {
            (WAITING, OPEN, F_OPEN): does(state=ReplicaState.FENCED),
            WRITING: does(state=ReplicaState.FENCED, writing=False),
            (FENCED, SEALED): does(writing=False),
            (CUT_OFF, F_FENCED, F_SEALED): NOTHING,
        },
        "fence": {
            (WAITING, OPEN, WRITING, F_OPEN): does(state=ReplicaState.FENCED),
            CLOSED: NOTHING,
        },
        "seal": {
            (WAITING, CUT_OFF): does(state=ReplicaState.SEALED, outcome=OUTCOME),
            (OPEN, WRITING, FENCED, F_OPEN, F_FENCED): does(
                state=ReplicaState.SEALED, tail_bytes=0, tail=0, outcome=OUTCOME
            ),
            (SEALED, F_SEALED): does(outcome=OUTCOME),
        },
        "read": {
            (WAITING, CUT_OFF, SEALED, F_SEALED): does([]),
            (OPEN, WRITING, FENCED, F_OPEN, F_FENCED): does([0]),
        },
        "keep recent bytes": {
            EVERYWHERE: does(recent=100),
        },
    },
)


def test_the_table_is_complete() -> None:
    TABLE.check_complete()


@pytest.mark.parametrize(("state", "input_"), TABLE.pairs())
def test_a_replica_in_every_state_with_every_input(state: str, input_: str) -> None:
    TABLE.check(state, input_)
