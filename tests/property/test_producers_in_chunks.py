"""The state of producers is the same wherever it comes from: replicas, chunks with changes only, and sealers."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smq_core.errors import SmqError
from smq_core.model.chunk_info import ChunkInfo, ProducerState, SealOutcome
from smq_core.model.entities import Durability
from smq_core.model.keyspace import KeyRange
from smq_core.replica.log_entries import (
    BatchId,
    Entry,
    IncomingBatch,
    ProducerLimits,
    ReplicaConfig,
    ReplicationMessage,
)
from smq_core.replica.producer_map import ProducerMap
from smq_core.replica.segment_replica import SegmentReplica
from smq_core.sealing.chain_sealer import ReadChunk, StoreReply, StoreRequest, UnsealedTail, seal

# Of all producers, and ``forgotten_upto``.
State = tuple[Mapping[str, ProducerState], int]

NAMES = [f"p{n}" for n in range(8)]


def replica(me: str, inherited: bool) -> SegmentReplica:
    config = ReplicaConfig(
        segment="s",
        range=KeyRange(0, 1),
        incarnation=me,
        replicas=("p", "f"),
        durability=Durability.REPLICATED,
        predecessors=("x",) if inherited else (),
        producer_limits=ProducerLimits(4, 60, snapshot_below=1, snapshot_every=4),
    )
    return SegmentReplica(config)


class History:
    """A primary with random producers, and the chain and the log that it wrote. Its follower confirms later."""

    def __init__(self, random: Random, steps: int, *, inherited: bool) -> None:
        self.inherited = inherited
        self.primary = replica("p", inherited)
        self.log: list[Entry] = []
        self.chain: list[ChunkInfo] = []
        self.now = 0
        if inherited:
            names = random.sample(NAMES, 5)
            states = {
                n: ProducerState(
                    epoch=random.randrange(3), last_sequence=4, recent=(9,), instance=random.choice("ij"), appended=0
                )
                for n in names
            }
            self.primary.predecessor_sealed(SealOutcome(segment="x", end=10, producers=states))
        self.primary.follower_connected("f", 0, 1 << 30)
        for _ in range(steps):
            self._step(random)

    def _step(self, random: Random) -> None:
        name, step = (
            random.choice(NAMES),
            random.choice(["open", "close", "append", "append", "append", "ack", "chunk"]),
        )
        self.now += random.randrange(10)
        if step == "close":
            self.primary.close_producer(name, name)
        elif step == "ack":
            self.primary.follower_acked("f", random.choice([entry.end for entry in self.log] or [0]))
        elif step == "chunk":
            self._write_chunk(random)
        else:
            self._from_producer(random, step, name)

    def _from_producer(self, random: Random, step: str, name: str) -> None:
        state = self.primary.sessions.producers.get(name)
        epoch = (state.epoch if state is not None else 0) + (random.random() < 0.2)
        instance = random.choice(["", "i", "j"]) if state is None or epoch > state.epoch else state.instance
        try:
            if step == "open":
                self.primary.open_producer(name, name, epoch, instance)
                return
            sequence = self.primary.sessions.producers.expected(name, epoch)
            batch = IncomingBatch(
                id=BatchId(name, epoch, sequence, instance),
                rows=random.randint(1, 3),
                nbytes=10,
                partition_min=0,
                partition_max=0,
                payload=None,
            )
            entry = self.primary.append(name, batch, self.now)
        except SmqError:
            return
        assert entry is not None
        self.log.append(entry)

    def _write_chunk(self, random: Random) -> None:
        chunk = self.primary.next_chunk(self.now, force=True)
        if chunk is None:
            return
        if random.random() < 0.2:
            self.primary.chunk_failed()
            return
        self.chain.append(chunk.info("s", "p", "n"))
        self.primary.chunk_written(chunk)

    def states(self) -> dict[int, State]:
        """The state at each offset where an entry ends, from the log alone."""
        producers = ProducerMap()
        found = {}
        for entry in self.log:
            producers.apply(entry)
            found[entry.end] = producers.snapshot(), producers.forgotten_upto
        return found

    def follower(self, chain_end: int, end: int) -> SegmentReplica:
        """A follower that holds the log up to ``end`` and knows the chain up to ``chain_end``."""
        found = replica("f", self.inherited)
        entries = tuple(entry for entry in self.log if entry.end <= end)
        found.replicate(ReplicationMessage(base_offset=0, entries=entries, watermark=end, chain_end=0))
        found.replicate(ReplicationMessage(base_offset=end, entries=(), watermark=end, chain_end=chain_end))
        return found


def state_of(producers: ProducerMap) -> State:
    return producers.snapshot(), producers.forgotten_upto


def run(sealer: Generator[StoreRequest, StoreReply, SealOutcome], chain: list[ChunkInfo]) -> SealOutcome:
    return run_on(sealer, {info.first: info for info in chain})


def run_on(sealer: Generator[StoreRequest, StoreReply, SealOutcome], chunks: dict[int, ChunkInfo]) -> SealOutcome:
    reply: StoreReply = None
    try:
        while True:
            request = sealer.send(reply)
            if isinstance(request, ReadChunk):
                reply = chunks.get(request.first)
            else:
                info = getattr(request, "chunk", request).info(
                    *(("s",) if hasattr(request, "chunk") else ()), "me", "n"
                )
                reply = chunks.setdefault(info.first, info) is info
    except StopIteration as done:
        outcome: SealOutcome = done.value
        return outcome


histories = st.builds(
    lambda seed, steps, inherited: (seed, steps, inherited),
    st.integers(0, 1 << 60),
    st.integers(0, 250),
    st.booleans(),
)


def history(drawn: tuple[int, int, bool]) -> History:
    """With a whole state in every fourth chunk, and in all of those with at most one producer."""
    seed, steps, inherited = drawn
    return History(Random(seed), steps, inherited=inherited)


@settings(max_examples=200, deadline=None)
@given(drawn=histories)
def test_chunks_fold_to_the_state_of_the_log_from_every_chunk_that_has_all_producers(
    drawn: tuple[int, int, bool],
) -> None:
    it = history(drawn)
    expected = it.states()
    for start, first in enumerate(it.chain):
        if first.snapshot_at is not None:
            continue
        producers = ProducerMap()
        for info in it.chain[start:]:
            producers.apply_chunk(info)
            assert state_of(producers) == expected[info.end]


@settings(max_examples=100, deadline=None)
@given(drawn=histories)
def test_a_chunk_names_the_last_one_that_has_all_producers(drawn: tuple[int, int, bool]) -> None:
    it = history(drawn)
    complete = None
    since = 0
    for info in it.chain:
        if info.snapshot_at is None:
            complete, since = info.first, 0
        since += 1
        assert info.snapshot_at in (None, complete) and complete is not None
        assert since <= 4


@settings(max_examples=100, deadline=None)
@given(drawn=histories)
def test_replicas_agree_on_producers_at_every_offset(drawn: tuple[int, int, bool]) -> None:
    it = history(drawn)
    expected = it.states()
    assert state_of(it.primary.sessions.producers)[0] == (
        expected[it.log[-1].end][0] if it.log else it.primary.sessions.producers.snapshot()
    )
    if it.primary.chain_end:
        assert state_of(it.primary.state_at_chain_end().producers) == expected[it.primary.chain_end]
    for entry in it.log[:: max(1, len(it.log) // 8)]:
        follower = it.follower(0, entry.end)
        assert state_of(follower.sessions.producers) == expected[entry.end]


@settings(max_examples=100, deadline=None)
@given(drawn=histories, choice=st.integers(0, 1 << 30))
def test_sealers_find_the_same_outcome_wherever_they_begin(drawn: tuple[int, int, bool], choice: int) -> None:
    it = history(drawn)
    expected = it.states()
    random = Random(choice)
    ends = [0, *(info.end for info in it.chain)]
    # Replicas: they hold the log up to somewhere, and know some of the chain.
    for end in {ends[-1], it.primary.end, random.choice([ends[-1], *(e.end for e in it.log)])}:
        reached = max(end, ends[-1])
        if not reached:
            continue
        follower = it.follower(random.choice([e for e in ends if e <= end]), end)
        outcome = run(seal("s", UnsealedTail.of(follower), max_chunk_bytes=25), it.chain)
        assert (outcome.end, (outcome.producers, outcome.forgotten_upto)) == (reached, expected[reached])
        assert outcome.uninherited == ()
    chunks = {info.first: info for info in it.chain}
    whole = run_on(seal("s", UnsealedTail.of(it.primary), max_chunk_bytes=25), chunks)
    for info in chunks.values():
        if info.rows and info not in it.chain:
            assert (info.producers, info.forgotten_upto) == expected[info.end], "another sealer may go on from here"
    assert whole.end == it.primary.end and whole.uninherited == ()
    assert (whole.producers, whole.forgotten_upto) == state_of(it.primary.sessions.producers)
    # Without a replica: from a chunk that has all producers.
    for info in it.chain:
        start = info.first if info.snapshot_at is None else info.snapshot_at
        outcome = run(seal("s", UnsealedTail(start=start, uninherited=("x",))), it.chain)
        assert (outcome.end, (outcome.producers, outcome.forgotten_upto)) == (ends[-1], expected[ends[-1]])
        assert outcome.uninherited == ()


@settings(max_examples=60, deadline=None)
@given(drawn=histories, choice=st.integers(0, 1 << 30))
def test_a_primary_seals_after_its_own_chunk_of_unknown_outcome(drawn: tuple[int, int, bool], choice: int) -> None:
    """The chunk exists, although its write failed here: the primary finds it where its own first chunk would be."""
    it = history(drawn)
    primary = it.primary
    if primary.chunk_in_flight:
        return
    chunk = primary.next_chunk(it.now, force=True)
    if chunk is None:
        return
    chain = [*it.chain, chunk.info("s", "p", "n")]
    primary.chunk_failed()
    primary.follower_acked("f", primary.end)
    primary.fence()
    outcome = run(seal("s", UnsealedTail.of(primary), max_chunk_bytes=25), chain)
    assert (outcome.end, (outcome.producers, outcome.forgotten_upto)) == (primary.end, it.states()[primary.end])


def test_with_many_producers_a_chunk_has_those_that_changed_and_every_64th_has_all() -> None:
    config = ReplicaConfig(
        segment="s", range=KeyRange(0, 1), incarnation="p", replicas=("p",), durability=Durability.REPLICATED
    )
    primary = SegmentReplica(config)

    def append(name: str) -> None:
        sequence = primary.sessions.producers.expected(name, 0)
        primary.append(
            "stream",
            IncomingBatch(
                id=BatchId(name, 0, sequence), rows=1, nbytes=10, partition_min=0, partition_max=0, payload=None
            ),
            0,
        )

    for n in range(150):
        append(f"p{n}")
    infos: list[ChunkInfo] = []
    for _ in range(130):
        append("p3")
        chunk = primary.next_chunk(0, force=True)
        assert chunk is not None
        infos.append(chunk.info("s", "p", "n"))
        primary.chunk_written(chunk)
    complete = [n for n, info in enumerate(infos) if info.snapshot_at is None]
    assert complete == [0, 64, 128]
    assert all(len(infos[n].producers) == 150 for n in complete)
    assert set(infos[1].producers) == {"p3"} and infos[65].snapshot_at == infos[64].first


@pytest.mark.parametrize("producers", [1, 100])
def test_with_few_producers_every_chunk_has_all(producers: int) -> None:
    primary = SegmentReplica(
        ReplicaConfig(
            segment="s", range=KeyRange(0, 1), incarnation="p", replicas=("p",), durability=Durability.REPLICATED
        )
    )
    for sequence in range(3):
        for n in range(producers if sequence == 0 else 1):
            primary.append(
                "stream",
                IncomingBatch(
                    id=BatchId(f"p{n}", 0, sequence), rows=1, nbytes=10, partition_min=0, partition_max=0, payload=None
                ),
                0,
            )
        chunk = primary.next_chunk(0, force=True)
        assert chunk is not None and len(chunk.info("s", "p", "n").producers) == producers
        assert chunk.snapshot_at is None
        primary.chunk_written(chunk)
