"""How a chain is ended: the procedure against a chain that others write to as well."""

from dataclasses import replace

import pytest

from smq_core.model.chunk_info import ChunkInfo, ProducerState, SealOutcome
from smq_core.model.entities import Durability
from smq_core.model.keyspace import KeyRange
from smq_core.model.loss import Loss
from smq_core.replica.log_entries import BatchId, Entry, IncomingBatch, ReplicaConfig, ReplicationMessage
from smq_core.replica.log_state import LogState
from smq_core.replica.producer_map import ProducerMap
from smq_core.replica.segment_replica import SegmentReplica
from smq_core.sealing.chain_sealer import ReadChunk, UnsealedTail, WriteChunk, WriteSeal, seal


class FakeChain:
    """Create-only chunks. Another writer puts ``meanwhile`` just before the next write."""

    def __init__(self, *chunks: ChunkInfo) -> None:
        self.objects = {chunk.first: chunk for chunk in chunks}
        self.meanwhile: list[ChunkInfo] = []
        self.taken_steps: list[object] = []

    def run(self, own_tail: UnsealedTail, **options: int) -> SealOutcome:
        sealer = seal("s", own_tail, **options)
        answer = None
        while True:
            try:
                step = sealer.send(answer)
            except StopIteration as end:
                return end.value
            self.taken_steps.append(step)
            answer = self._perform(step)

    def _perform(self, step):
        match step:
            case ReadChunk(first):
                return self.objects.get(first)
            case WriteChunk(chunk):
                return self._create(chunk.info("s", "me", "n"))
            case WriteSeal():
                return self._create(step.info("me", "n"))

    def _create(self, info: ChunkInfo) -> bool:
        if self.meanwhile:
            other = self.meanwhile.pop(0)
            self.objects.setdefault(other.first, other)
        return self.objects.setdefault(info.first, info) is info


def entry(sequence: int) -> Entry:
    return Entry(
        first=2 * sequence,
        batch=IncomingBatch(
            id=BatchId("a", 0, sequence), rows=2, nbytes=20, partition_min=0, partition_max=0, payload=None
        ),
        appended=0,
    )


def own_tail(start: int = 0, stop: int = 3) -> UnsealedTail:
    """Batches ``start .. stop - 1`` of two rows, and the producers' state before them."""
    producers = ProducerMap(theirs(0, start).producers)
    return UnsealedTail(start=2 * start, state=LogState(producers), entries=tuple(entry(n) for n in range(start, stop)))


def theirs(first: int, stop: int, *, sealed: bool = False) -> ChunkInfo:
    """Another process's chunk of the batches ``first .. stop - 1``; its producers are right."""
    replica = SegmentReplica(
        ReplicaConfig(
            segment="s", range=KeyRange(0, 1), incarnation="f", replicas=("p", "f"), durability=Durability.REPLICATED
        )
    )
    entries = tuple(entry(n) for n in range(stop))
    replica.replicate(ReplicationMessage(base_offset=0, entries=entries, watermark=2 * stop, chain_end=2 * stop))
    rows = 0 if sealed else 2 * (stop - first)
    return ChunkInfo(
        segment="s",
        first=2 * first,
        rows=rows,
        writer="other",
        nonce="n",
        sealed=sealed,
        producers=replica.state_at_chain_end().producers.snapshot(),
    )


def test_what_is_held_is_added_and_then_the_chain_is_ended():
    chain = FakeChain()
    outcome = chain.run(own_tail())
    assert outcome == SealOutcome(segment="s", end=6, producers=theirs(0, 3).producers)
    assert [(c.first, c.rows, c.sealed) for c in chain.objects.values()] == [(0, 6, False), (6, 0, True)]


def test_chunks_are_limited_in_size():
    chain = FakeChain()
    outcome = chain.run(own_tail(), max_chunk_bytes=45)
    assert [(c.first, c.rows) for c in chain.objects.values()] == [(0, 4), (4, 2), (6, 0)]
    assert outcome.producers["a"].last_sequence == 2


def test_it_goes_on_where_the_chain_ends():
    chain = FakeChain(theirs(0, 2))
    outcome = chain.run(own_tail())
    assert [(c.first, c.writer) for c in chain.objects.values()] == [(0, "other"), (4, "me"), (6, "me")]
    assert outcome == SealOutcome(segment="s", end=6, producers=theirs(0, 3).producers)


def test_one_that_holds_less_than_the_chain_seals_at_the_chains_end():
    chain = FakeChain(theirs(0, 3))
    assert chain.run(own_tail(0, 1)) == SealOutcome(segment="s", end=6, producers=theirs(0, 3).producers)


def test_one_that_holds_nothing_seals_with_what_the_chain_says_of_producers():
    chain = FakeChain(theirs(0, 2))
    assert chain.run(UnsealedTail()) == SealOutcome(segment="s", end=4, producers=theirs(0, 2).producers)


def test_the_first_seal_chunk_is_the_truth():
    chain = FakeChain(theirs(0, 2), theirs(2, 2, sealed=True))
    before = dict(chain.objects)
    assert chain.run(own_tail()) == SealOutcome(segment="s", end=4, producers=theirs(0, 2).producers)
    assert chain.objects == before


def test_a_chunk_that_was_there_first_is_read_and_built_upon():
    chain = FakeChain()
    chain.meanwhile = [theirs(0, 2)]
    assert chain.run(own_tail()).end == 6
    assert [(c.first, c.rows, c.writer) for c in chain.objects.values()] == [
        (0, 4, "other"),
        (4, 2, "me"),
        (6, 0, "me"),
    ]


def test_a_seal_that_was_there_first_decides():
    chain = FakeChain()
    chain.meanwhile = [theirs(0, 1), theirs(1, 1, sealed=True)]
    outcome = chain.run(own_tail())
    assert outcome == SealOutcome(segment="s", end=2, producers=theirs(0, 1).producers)
    assert set(chain.objects) == {0, 2}


def test_a_chunk_at_the_place_of_the_seal_moves_the_seal():
    chain = FakeChain(theirs(0, 1))
    chain.meanwhile = [theirs(1, 2)]
    assert chain.run(own_tail(0, 1)).end == 4
    assert chain.objects[4].sealed and chain.objects[4].producers == theirs(0, 2).producers


@pytest.mark.parametrize(("known", "lost"), [(None, None), (3, None), (4, None), (9, Loss(4, 9))])
def test_what_was_acked_beyond_the_end_is_recorded_as_lost(known, lost):
    chain = FakeChain(theirs(0, 2))
    assert chain.run(UnsealedTail(), known_watermark=known).lost == lost
    assert chain.objects[4].lost == lost


@pytest.mark.parametrize(("known", "upto"), [(None, 4), (3, 4), (4, 4), (9, 9)])
def test_a_sealer_that_may_not_know_all_acks_leaves_the_loss_open(known, upto):
    chain = FakeChain(theirs(0, 2))
    assert chain.run(UnsealedTail(), known_watermark=known, at_least=True).lost == Loss(4, upto, True)
    assert chain.objects[4].lost == Loss(4, upto, True)


def test_only_a_loss_recorded_in_the_seal_is_reported():
    chain = FakeChain(theirs(0, 2), theirs(2, 2, sealed=True))
    assert chain.run(UnsealedTail(), known_watermark=9).lost is None


def test_a_replicas_tail_is_what_it_holds_beyond_its_chain_end():
    replica = SegmentReplica(
        ReplicaConfig(
            segment="s", range=KeyRange(0, 1), incarnation="f", replicas=("p", "f"), durability=Durability.REPLICATED
        )
    )
    replica.replicate(
        ReplicationMessage(base_offset=0, entries=tuple(entry(n) for n in range(3)), watermark=4, chain_end=2)
    )
    found, expected = UnsealedTail.of(replica), own_tail(1, 3)
    assert (found.start, found.entries) == (expected.start, expected.entries)
    assert found.state.producers.snapshot() == expected.state.producers.snapshot()


def test_the_only_writer_of_a_chain_reads_only_after_a_conflict():
    chain = FakeChain(theirs(0, 1))
    assert chain.run(replace(own_tail(1, 3), knows_chain_end=True)).end == 6
    assert [type(step) for step in chain.taken_steps] == [WriteChunk, WriteSeal]

    chain = FakeChain(theirs(0, 1))
    chain.meanwhile = [theirs(1, 2)]
    assert chain.run(replace(own_tail(1, 3), knows_chain_end=True)).end == 6
    assert [type(step) for step in chain.taken_steps] == [WriteChunk, ReadChunk, ReadChunk, WriteChunk, WriteSeal]

    chain = FakeChain(theirs(0, 1), theirs(1, 1, sealed=True))
    assert chain.run(replace(own_tail(1, 1), knows_chain_end=True)) == SealOutcome(
        segment="s", end=2, producers=theirs(0, 1).producers
    )
    assert [type(step) for step in chain.taken_steps] == [WriteSeal, ReadChunk]


def test_only_a_primary_knows_where_its_chain_ends():
    replicas = ("p", "f")
    for me in replicas:
        replica = SegmentReplica(
            ReplicaConfig(
                segment="s", range=KeyRange(0, 1), incarnation=me, replicas=replicas, durability=Durability.REPLICATED
            )
        )
        assert UnsealedTail.of(replica).knows_chain_end == (me == "p")


FENCES = {"a": ProducerState(epoch=2, last_sequence=-1, recent=(), instance="i", appended=5)}


def with_predecessor(me: str) -> SegmentReplica:
    return SegmentReplica(
        ReplicaConfig(
            segment="s",
            range=KeyRange(0, 1),
            incarnation=me,
            replicas=("p", "f"),
            durability=Durability.REPLICATED,
            predecessors=("x", "y"),
        )
    )


def open_with_predecessors() -> SegmentReplica:
    primary = with_predecessor("p")
    primary.follower_connected("f", 0, 1000)
    primary.predecessor_sealed(SealOutcome(segment="x", end=1, producers=FENCES))
    primary.predecessor_sealed(SealOutcome(segment="y", end=1))
    return primary


def test_a_primary_that_ends_empty_passes_on_what_it_inherited():
    assert FakeChain().run(UnsealedTail.of(open_with_predecessors())) == SealOutcome(
        segment="s", end=0, producers=FENCES
    )


def test_who_does_not_know_the_predecessors_producers_names_the_predecessors():
    waiting = with_predecessor("p")
    waiting.predecessor_sealed(SealOutcome(segment="x", end=1, producers=FENCES))
    expected = SealOutcome(segment="s", end=0, uninherited=("x", "y"))
    for tail in (
        UnsealedTail.of(with_predecessor("f")),
        UnsealedTail.of(waiting),
        UnsealedTail(uninherited=("x", "y")),
    ):
        chain = FakeChain()
        assert chain.run(tail) == expected
        assert chain.objects[0].outcome == expected


def test_the_first_entry_gives_a_follower_and_its_chunk_what_was_inherited():
    primary, follower = open_with_predecessors(), with_predecessor("f")
    primary.append(
        "stream",
        IncomingBatch(id=BatchId("b", 0, 0), rows=2, nbytes=20, partition_min=0, partition_max=0, payload=None),
        now=7,
    )
    message = primary.replication_for("f")
    assert message is not None
    follower.replicate(message)
    for replica in (primary, follower):
        chain = FakeChain()
        outcome = chain.run(UnsealedTail.of(replica))
        assert outcome == SealOutcome(
            segment="s",
            end=2,
            producers={**FENCES, "b": ProducerState(epoch=0, last_sequence=0, recent=(0,), appended=7)},
        )
        assert chain.objects[0].producers == outcome.producers
        assert FakeChain(chain.objects[0]).run(UnsealedTail(uninherited=("x", "y"))) == outcome


def test_it_can_be_stopped_anywhere_and_run_again():
    """If a sealer is stopped after any of its steps, the next one seals the chain with the same outcome."""
    whole = FakeChain()
    expected = whole.run(own_tail(), max_chunk_bytes=20)
    for steps in range(len(whole.taken_steps)):
        chain = FakeChain()
        sealer, answer = seal("s", own_tail(), max_chunk_bytes=20), None
        for _ in range(steps):
            answer = chain._perform(sealer.send(answer))
        sealer.close()
        assert chain.run(own_tail()) == expected
