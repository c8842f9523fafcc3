"""A primary and its follower, every event in any order: what must hold after each step."""

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from smq_core.errors import OffsetMismatch, ProducerFenced, SegmentSealed, SequenceGap
from smq_core.model.chunk_info import ChunkInfo, SealOutcome
from smq_core.model.entities import Durability
from smq_core.model.keyspace import KeyRange
from smq_core.replica.log_entries import BatchId, ChunkWrite, Entry, IncomingBatch, ReplicaConfig, ReplicationMessage
from smq_core.replica.segment_replica import ReplicaState, SegmentReplica
from smq_core.sealing.chain_sealer import ReadChunk, UnsealedTail, WriteChunk, seal

PRODUCERS = ("a", "b")
CREDIT = 1000


class PrimaryAndFollower(RuleBasedStateMachine):
    """Messages between the two wait in queues: late, repeated, or lost with their stream. The chain is a dict."""

    def __init__(self) -> None:
        super().__init__()
        both = ("p", "f")

        def replica(me: str) -> SegmentReplica:
            return SegmentReplica(
                ReplicaConfig(
                    segment="s",
                    range=KeyRange(0, 4),
                    incarnation=me,
                    replicas=both,
                    durability=Durability.REPLICATED,
                    flush_bytes=300,
                    flush_interval=50,
                )
            )

        self.primary, self.follower = replica("p"), replica("f")
        self.log: list[BatchId] = []
        self.epochs = dict.fromkeys(PRODUCERS, 0)
        self.sent: deque[ReplicationMessage] = deque()
        self.old: list[ReplicationMessage] = []
        self.answers: deque[int] = deque()
        self.chain: dict[int, ChunkInfo] = {}
        self.chunk: ChunkWrite | None = None
        self.acked: dict[BatchId, int | None] = {}
        self.outcomes: list[SealOutcome] = []
        self.now = 0

    @initialize()
    def connect(self) -> None:
        self.primary.follower_connected("f", self.follower.end, CREDIT)

    # ---- producers

    @rule(producer=st.sampled_from(PRODUCERS), rows=st.integers(1, 5), step=st.integers(-3, 2))
    def append(self, producer: str, rows: int, step: int) -> None:
        """``step`` 0 is the next batch; below it a repeat, above it a gap."""
        epoch = self.epochs[producer]
        mine = [b.sequence for b in self.log if b.producer == producer and b.epoch == epoch]
        sequence = max(0, len(mine) + step)
        id_ = BatchId(producer, epoch, sequence)
        before = self.primary.end
        self.now += 7
        try:
            entry = self.primary.append(
                "stream",
                IncomingBatch(id=id_, rows=rows, nbytes=rows * 20, partition_min=0, partition_max=3, payload=id_),
                self.now,
            )
        except SequenceGap as gap:
            assert sequence > len(mine) and gap.expected == len(mine)
        except SegmentSealed:
            assert self.primary.state is not ReplicaState.OPEN
        else:
            assert self.primary.state is ReplicaState.OPEN
            assert (entry is None) == (sequence < len(mine))
            if entry is not None:
                assert entry.first == before and entry.end == before + rows
                self.log.append(id_)
                return
        assert self.primary.end == before

    @rule(producer=st.sampled_from(PRODUCERS))
    def newer_epoch(self, producer: str) -> None:
        """An older epoch is fenced by the first batch of a newer one."""
        old = self.epochs[producer]
        self.epochs[producer] = old + 1
        before = self.primary.end
        self.append(producer, 1, 0)
        if self.primary.end > before:
            try:
                self.primary.append(
                    "stream",
                    IncomingBatch(
                        id=BatchId(producer, old, 0), rows=1, nbytes=20, partition_min=0, partition_max=3, payload=None
                    ),
                    self.now,
                )
            except ProducerFenced as fenced:
                assert fenced.epoch == old + 1
            else:
                raise AssertionError("an older epoch was let in")

    @rule()
    def take_acks(self) -> None:
        due = self.primary.has_due_acks()
        acks = self.primary.take_acks()
        assert due == bool(acks) and not self.primary.has_due_acks()
        for ack in acks:
            if ack.first_offset is not None:
                assert self.acked.setdefault(ack.id, ack.first_offset) == ack.first_offset
                # Durable: the follower holds it, or the chain does.
                assert ack.first_offset < max(self.follower.end, self.chain_end())

    # ---- replication

    @rule(limit=st.sampled_from([1, 60, 1 << 40]))
    def replicate(self, limit: int) -> None:
        message = self.primary.replication_for("f", max_bytes=limit)
        if message is not None:
            self.sent.append(message)
            self.old.append(message)

    @precondition(lambda self: self.sent)
    @rule()
    def arrive(self) -> None:
        self._take(self.sent.popleft(), answer=True)

    @precondition(lambda self: self.old)
    @rule(data=st.data())
    def arrive_again(self, data: st.DataObject) -> None:
        """A message of an earlier stream."""
        self._take(data.draw(st.sampled_from(self.old)), answer=False)

    def _take(self, message: ReplicationMessage, *, answer: bool) -> None:
        before = self.follower.end
        try:
            end = self.follower.replicate(message)
        except OffsetMismatch:
            assert message.base_offset > before and self.follower.end == before
        except SegmentSealed:
            assert self.follower.state is not ReplicaState.OPEN and self.follower.end == before
        else:
            assert end >= before
            if answer:
                self.answers.append(end)

    @precondition(lambda self: self.answers)
    @rule()
    def answer(self) -> None:
        self.primary.follower_acked("f", self.answers.popleft())

    @rule(lose=st.booleans())
    def reconnect(self, lose: bool) -> None:
        """The stream breaks, with what was under way, and opens again."""
        self.primary.follower_disconnected("f")
        assert self.primary.replication_for("f") is None
        if lose:
            self.sent.clear()
            self.answers.clear()
        self.primary.follower_connected("f", self.follower.end, CREDIT)

    # ---- the chain

    def chain_end(self) -> int:
        at = 0
        while at in self.chain and not self.chain[at].sealed:
            at = self.chain[at].end
        return at

    def _put(self, info: ChunkInfo) -> bool:
        return self.chain.setdefault(info.first, info) is info

    @rule(force=st.booleans(), jump=st.sampled_from([0, 100]))
    def begin_chunk(self, force: bool, jump: int) -> None:
        self.now += jump
        chunk = self.primary.next_chunk(self.now, force=force)
        if chunk is not None:
            assert self.chunk is None and self.primary.state is ReplicaState.OPEN
            assert chunk.first == self.primary.chain_end and chunk.end <= self.primary.watermark
            self.chunk = chunk

    @precondition(lambda self: self.chunk is not None)
    @rule(works=st.booleans())
    def end_chunk(self, works: bool) -> None:
        chunk, self.chunk = self.chunk, None
        assert chunk is not None
        if not works:
            self.primary.chunk_failed()
        elif self._put(chunk.info("s", "p", "n")):
            self.primary.chunk_written(chunk)
        else:
            self.primary.chunk_conflict()
            assert self.primary.state in (ReplicaState.FENCED, ReplicaState.SEALED)

    # ---- sealing

    @rule(which=st.sampled_from(["primary", "follower"]))
    def fence(self, which: str) -> None:
        getattr(self, which).fence()

    @rule(which=st.sampled_from(["primary", "follower"]))
    def run_sealer(self, which: str) -> None:
        replica: SegmentReplica = getattr(self, which)
        if replica.state is not ReplicaState.FENCED or replica.chunk_in_flight:
            return
        sealer = seal("s", UnsealedTail.of(replica), max_chunk_bytes=100)
        answer: ChunkInfo | bool | None = None
        while True:
            try:
                operation = sealer.send(answer)  # type: ignore[arg-type]
            except StopIteration as end:
                replica.sealed(end.value)
                self.outcomes.append(end.value)
                return
            if isinstance(operation, ReadChunk):
                answer = self.chain.get(operation.first)
            elif isinstance(operation, WriteChunk):
                answer = self._put(operation.chunk.info("s", which, "n"))
            else:
                answer = self._put(operation.info(which, "n"))

    # ---- what holds after each step

    @invariant()
    def positions_are_in_order(self) -> None:
        for replica in (self.primary, self.follower):
            assert 0 <= replica.chain_end <= replica.end
            assert replica.watermark <= replica.end
            assert replica.tail_bytes == sum(e.batch.nbytes for e in replica.tail)
            if replica.state is not ReplicaState.SEALED:
                firsts = [replica.chain_end, *(e.end for e in replica.tail)]
                assert [e.first for e in replica.tail] == firsts[:-1] and firsts[-1] == replica.end

    @invariant()
    def the_follower_is_a_prefix(self) -> None:
        assert self.follower.end <= self.primary.end
        known = {e.first: e for e in self.primary.tail}
        assert all(known.get(e.first, e) == e for e in self.follower.tail)

    @invariant()
    def nothing_is_let_go_before_it_is_in_the_chain(self) -> None:
        assert max(self.primary.chain_end, self.follower.chain_end) <= self.chain_end()

    @invariant()
    def what_is_durable_is_held_twice_or_in_the_chain(self) -> None:
        durable = max(self.primary.watermark, self.follower.watermark)
        assert durable <= max(min(self.primary.end, self.follower.end), self.chain_end())

    @invariant()
    def time_does_not_go_back(self) -> None:
        times = [e.appended for e in self.primary.tail]
        assert times == sorted(times)

    @invariant()
    def one_outcome_that_has_all_that_was_acked(self) -> None:
        for outcome in self.outcomes:
            assert outcome == self.outcomes[0]
            assert all(first is None or first < outcome.end for first in self.acked.values())

    @invariant()
    def readers_see_whole_durable_entries(self) -> None:
        for replica in (self.primary, self.follower):
            entries = list(replica.readable(replica.tail_start, 100))
            assert all(isinstance(e, Entry) and e.end <= replica.watermark for e in entries)


PrimaryAndFollower.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestPrimaryAndFollower = PrimaryAndFollower.TestCase
