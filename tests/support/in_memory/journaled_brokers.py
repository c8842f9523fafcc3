"""Brokers with journals in one process: killed, and started again on the folders that they leave."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from smq_broker.rows.payloads import Payload
from smq_broker.rows.small_batches import SmallBatch
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Segment
from smq_core.replica.log_entries import BatchId, IncomingBatch
from smq_core.replica.segment_replica import ReplicaState
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL, outcome_from_pb
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.store import open_store
from support.data.raw_flight import rows
from support.in_memory.broker_parts import BrokerParts
from support.processes.broker import make_segment, make_topic
from support.waiting import eventually


class JournaledBrokers:
    """One segment on some brokers, the first of which is its primary. ``memory`` of each in bytes."""

    def __init__(self, folder: Path, count: int = 2, memory: int = 1 << 30) -> None:
        self._folder = folder
        self._memory = memory
        self.store = open_store("memory://")
        self.topic = make_topic()
        self._starts = dict.fromkeys((f"b{number}" for number in range(1, count + 1)), 0)
        self._restarts = 0
        self._network: dict[str, BrokerParts] = {}
        self.brokers = [self.start(name) for name in self._starts]
        self.segment = self.open(*self.brokers)

    def start(self, name: str) -> BrokerParts:
        self._starts[name] += 1
        return BrokerParts(
            name,
            self.store,
            self._network,
            memory=self._memory,
            journal=self.journal(name),
            start=self._starts[name],
        )

    def journal(self, name: str) -> Path:
        """The folder of a broker's journal."""
        return self._folder / str(self._restarts) / name

    def open(self, *brokers: BrokerParts, number: int = 0) -> Segment:
        segment = make_segment(self.topic, *(it.replica for it in brokers), number=number)
        for broker in reversed(brokers):
            broker.opener.open(self.topic, segment)
        return segment

    def write(self, values: list[bytes], name: str = "p") -> None:
        """Writes one batch for each value, and waits for the acks."""
        producer = self.brokers[0].produce(self.topic, self.segment, name)
        for number, value in enumerate(values):
            producer.send(number, rows([value]))
        producer.wait_acked(len(values) - 1)

    def append_small(self, values: list[bytes]) -> None:
        """Appends these messages as one small batch, and waits until all replicas have them."""
        hosted = self.brokers[0].hosted(self.topic, self.segment)
        count = len(values)
        payload = Payload(SmallBatch([0] * count, [0] * count, [], values))
        with hosted as machine:
            machine.append(
                None,
                IncomingBatch(
                    id=BatchId("small", 1, 0), rows=count, nbytes=1, partition_min=0, partition_max=0, payload=payload
                ),
                0,
            )
            end = machine.end
        eventually(lambda: hosted.machine.watermark == end)

    def flush(self) -> None:
        """Writes the primary's tail to the filer, and waits until the followers know."""
        hosted = [it.hosted(self.topic, self.segment) for it in self.brokers]
        with hosted[0] as machine:
            hosted[0].flush_schedule.request(machine.watermark)
        self.brokers[0].flusher.flush_next()
        eventually(lambda: all(it.machine.chain_end == machine.end for it in hosted), "all have trimmed their tails")

    def restart(self) -> None:
        """Kills all brokers and starts them again, on copies of their journals.

        A killed process changes no file any more, but the threads of these still run.
        """
        killed = dict(zip(self._starts, self.brokers, strict=True))
        formers = {name: self.journal(name) for name in killed}
        self._restarts += 1
        for broker in killed.values():
            broker.kill()
        for name, broker in killed.items():
            with ExitStack() as unchanged:
                for hosted in broker.registry.all():
                    if hosted.journal is not None:
                        lock = hosted.journal.lock
                        eventually(partial(lock.acquire, blocking=False), "nobody writes to the journal")
                        unchanged.callback(lock.release)
                shutil.copytree(formers[name], self.journal(name))
        for broker in killed.values():
            for hosted in broker.registry.all():
                with hosted as machine:
                    if machine.state is ReplicaState.OPEN:
                        machine.state = ReplicaState.FENCED  # so that its threads end
        self.brokers = [self.start(name) for name in self._starts]

    def seal_recovered(
        self, number: int, known_watermark: int | None = None, *, accept_incomplete: bool = False
    ) -> SealOutcome:
        """Lets a restarted broker seal the segment in place of the former one."""
        request = pb.SealSegment(
            protocol=PROTOCOL,
            topic=self.topic.name,
            uid=self.topic.uid,
            segment=self.segment.name,
            incarnation=self.segment.replicas[number].incarnation,
            reason="test",
            accept_incomplete=accept_incomplete,
            known_watermark=known_watermark,
        )
        answer = self.brokers[number].action("seal", request)
        assert isinstance(answer, pb.SealOutcome)
        return outcome_from_pb(answer)

    @property
    def chain(self) -> ChunkChain:
        return ChunkChain(self.store, self.topic.name, self.topic.uid, self.segment.name)

    def stored_values(self) -> list[bytes]:
        """The values in the filer."""
        found: list[bytes] = []
        for info in self.chain.walk():
            if not info.sealed:
                chunk = self.chain.read(info.first)
                assert chunk is not None
                found += chunk[1].column("value").to_pylist()
        return found

    def files(self, number: int) -> list[Path]:
        """The files of the segment's journal, at the broker of that number."""
        return sorted(it for it in self.journal(f"b{number + 1}").glob("*/*/*/*") if it.is_file())
