"""The parts of brokers in one process: an in-memory filer, streams without a network, and threads that may fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from google.protobuf.message import Message
from prometheus_client import CollectorRegistry

from smq_broker.access.callers import OPEN_CALLER, Caller
from smq_broker.file_lists.writer import FileListWriter
from smq_broker.journal.disk_activity import DiskActivity
from smq_broker.journal.folder import FormerIncarnation, JournalFolder
from smq_broker.journal.journal_metrics import JournalMetrics
from smq_broker.leader_client.locator import Locator
from smq_broker.leader_client.reports import BrokerStatusReporter
from smq_broker.memory.accounting import MemoryAccounting
from smq_broker.producers.claims import ProducerClaims
from smq_broker.producers.producer_lane import ProducerLane
from smq_broker.producers.upload_checker import UploadChecker
from smq_broker.recovery.recovered_logs import RecoveredLogs
from smq_broker.replication.connections import ReplicaConnections
from smq_broker.replication.follower_lane import FollowerLane, PrimaryConnections
from smq_broker.replication.message_spacing import ActiveClients
from smq_broker.replication.replica_session import ReplicaSession
from smq_broker.runtime.broker_metrics import BrokerMetrics
from smq_broker.runtime.clock import Clock
from smq_broker.runtime.pauses import PauseCounter
from smq_broker.runtime.threads import RestartPolicy, Spawn, ThreadSupervisor, spawn_daemon
from smq_broker.segments.flusher import Flusher
from smq_broker.segments.hosted_segment import HostedSegment
from smq_broker.segments.opening import SegmentOpener
from smq_broker.segments.registry import SegmentRegistry
from smq_broker.segments.seal_watcher import SealWatcher
from smq_broker.segments.sealing import SegmentSealer
from smq_broker.segments.stored_layouts import StoredLayouts
from smq_broker.streams.actions import ActionCall, Actions
from smq_broker.streams.batch_reader import BatchReader
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Replica, Segment, Topic
from smq_core.model.reference import Reference
from smq_core.replica.log_entries import ProducerLimits
from smq_proto.error_conversion import error_from_pb
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL, reference_to_pb
from smq_storage.object_store.store import StoreSettings
from support.in_memory.flight_streams import CallContext, InMemoryFlightClient, PutStream
from support.waiting import HANG_GUARD, eventually

Wrap = Callable[[str, Callable[..., Any]], Callable[..., Any]]


def unchanged(_: str, call: Callable[..., Any]) -> Callable[..., Any]:
    return call


class _StopRequest:
    """In a queue instead of a segment, it ends the worker that takes it."""

    def __enter__(self) -> None:
        raise SystemExit


class BrokerParts:
    """One broker. ``network`` has all brokers by address; ``wrap`` may replace each callback between the parts.

    With ``journal``, a folder, it begins with what former ones left there. ``start`` counts the broker's starts.
    """

    def __init__(
        self,
        name: str,
        store: Any,
        network: dict[str, BrokerParts] | None = None,
        *,
        memory: int = 1 << 30,
        spawn: Spawn | None = None,
        wrap: Wrap = unchanged,
        journal: Path | None = None,
        start: int = 1,
    ) -> None:
        self.replica = Replica(name, f"i-{name}" if start == 1 else f"i-{name}-{start}", f"{name}:1")
        self.network = {} if network is None else network
        self.network[self.replica.address] = self
        self.metrics = BrokerMetrics(CollectorRegistry())
        self._start_thread = spawn or spawn_daemon
        self._endless: list[threading.Thread] = []
        self.threads = ThreadSupervisor(
            self.metrics, spawn=self._spawn, restart_policy=RestartPolicy(pause_seconds=0.0)
        )
        self.memory = MemoryAccounting(memory, 1 << 30 if journal is not None else 0)
        self.uploads = UploadChecker(store)
        self.accepting_batches = threading.Event()
        self.accepting_batches.set()
        self.registry = SegmentRegistry(self.replica.incarnation, on_drain=wrap("on_drain", lambda: None))
        self.file_lists = FileListWriter(store, self.metrics, self.threads)
        self.sealer = SegmentSealer(
            registry=self.registry,
            store=store,
            broker_metrics=self.metrics,
            threads=self.threads,
            file_lists=self.file_lists,
        )
        self.stopped = False
        self._killed = False
        self.disk = DiskActivity(lambda: 0.0)  # a slow machine is no disk that does not answer
        self.journal_metrics = JournalMetrics(self.disk)
        self.journal: JournalFolder | None = None
        formers: list[FormerIncarnation] = []
        if journal is not None:
            self.journal = JournalFolder(
                folder=journal,
                incarnation=self.replica.incarnation,
                root="root",
                meter=self.journal_metrics,
                activity=self.disk,
            )
            self.journal.lock(wait=0.0)
            formers = self.journal.recover()
            with suppress(OSError):
                self.journal.begin()
        self.recovered = RecoveredLogs(formers, store, Clock(), on_change=lambda: None)
        self.flusher = Flusher(
            hosted=self._hosted,
            memory=self.memory,
            broker_metrics=self.metrics,
            threads=self.threads,
            on_chunk_taken=wrap("on_chunk_taken", self.sealer.follow_seal),
        )
        pauses = PauseCounter(lambda: 0.0)  # a slow machine makes no pauses here
        self.watcher = SealWatcher(
            self._hosted, pauses, self.threads, on_seal_found=wrap("on_seal_found", self.sealer.record_seal)
        )
        self.wrap = wrap
        self.clients = ActiveClients()
        self.connections = ReplicaConnections(
            self.replica.incarnation,
            threads=self.threads,
            clients=self.clients,
            connect_flight=lambda address, _: self._connect(address),
        )
        self._primaries = PrimaryConnections()
        self.primaries_caller: Caller = OPEN_CALLER
        """Who opens the next streams of replication here."""
        self.opener = SegmentOpener(
            registry=self.registry,
            store=store,
            memory=self.memory,
            clock=Clock(),
            pauses=pauses,
            flusher=self.flusher,
            sealer=self.sealer,
            connect_follower=self._link,
            threads=self.threads,
            producer_limits=ProducerLimits(),
            on_change=wrap("on_change", lambda: None),
            journal=self.journal,
        )
        self.reporter = BrokerStatusReporter(
            broker=name, registry=self.registry, memory=self.memory, recovered=self.recovered, disk=self.disk
        )
        self._store = store

    def action(self, name: str, request: Message) -> Message | None:
        """What the broker answers to a request of the leader."""
        call = ActionCall(request.SerializeToString(), CallContext().is_cancelled, OPEN_CALLER)
        return self.actions().run(name, call)

    def actions(self) -> Actions:
        return Actions(
            self.registry,
            opener=self.opener,
            sealer=self.sealer,
            reporter=self.reporter,
            locator=Locator(self._store, StoreSettings(url="memory://")),
            claims=ProducerClaims(self._store, Clock()),
            recovered=self.recovered,
            layouts=StoredLayouts(self._store),
        )

    def kill(self) -> None:
        """Ends this broker as SIGKILL does: it serves nobody any more, and only its journal stays.

        Its threads still run, so it must not seal what they find fenced.
        """
        self._killed = True
        del self.network[self.replica.address]
        if self.journal is not None:
            self.journal.unlock()

    def stop(self) -> None:
        """Ends the endless threads: those that poll, and those that wait for work."""
        self.stopped = True
        for thread in self._endless:
            if thread.name.startswith("flush"):
                self._stop_worker(self.flusher.enqueue)
            else:
                self._stop_worker(self.watcher.enqueue)
        for thread in self._endless:
            thread.join(HANG_GUARD)

    @staticmethod
    def _stop_worker(enqueue: Callable[[Any], None]) -> None:
        for _ in range(RestartPolicy().max_failures):
            enqueue(_StopRequest())

    def _spawn(self, run: Callable[[], None], name: str) -> threading.Thread:
        thread = self._start_thread(run, name)
        if name.startswith(("flush-", "seal-check", "seal-watcher")):
            self._endless.append(thread)
        return thread

    def _hosted(self) -> list[HostedSegment]:
        if self.stopped:
            raise SystemExit
        return self.registry.all()

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    def hosted(self, topic: Topic, segment: Segment) -> HostedSegment:
        return self.registry.find(segment.name, topic.uid, self.replica.incarnation)

    def seal(self, topic: Topic, segment: Segment, successors: Sequence[Segment] = ()) -> SealOutcome:
        return self.sealer.seal(self.hosted(topic, segment), successors, "test", lambda: False)

    def produce(self, topic: Topic, segment: Segment, name: str = "p") -> ProducerClient:
        return ProducerClient(self, self.hosted(topic, segment), name)

    def _link(
        self,
        hosted: HostedSegment,
        *,
        follower: Replica,
        on_fenced: Callable[[HostedSegment], None],
        on_death: Callable[[], None],
    ) -> Any:
        seal_fenced = self.wrap("on_fenced", on_fenced)
        return ReplicaSession(
            hosted,
            follower=follower,
            on_fenced=lambda hosted: None if self._killed else seal_fenced(hosted),
            on_death=on_death,
            connections=self.connections,
        )

    def _connect(self, address: str) -> InMemoryFlightClient:
        return InMemoryFlightClient(self.network[address].serve_replication)

    def hello(self, uid: str, lane: pb.Lane) -> pb.PutOpen:
        producers = pb.ProducersHello(lane=lane)
        return pb.PutOpen(protocol=PROTOCOL, incarnation=self.replica.incarnation, uid=uid, producers=producers)

    def lane(self, stream: PutStream, hello: pb.PutOpen, caller: Caller = OPEN_CALLER) -> ProducerLane:
        """The broker's end of a lane."""
        return ProducerLane(
            self.registry,
            caller=caller,
            quota=caller.open_stream(hello.uid),
            hello=hello,
            reader=BatchReader(stream),
            writer=stream,
            max_batch=1 << 20,
            accepting_batches=self.accepting_batches,
            uploads=self.uploads,
            broker_metrics=self.metrics,
            threads=self.threads,
            clients=self.clients,
        )

    def serve_replication(self, command: bytes, stream: PutStream) -> None:
        hello = pb.PutOpen.FromString(command)
        FollowerLane(
            self.registry,
            caller=self.primaries_caller,
            connections=self._primaries,
            hello=hello,
            reader=BatchReader(stream),
            writer=stream,
        ).serve()


class ProducerClient:
    """One session of a producer, alone on a lane."""

    SESSION = 1

    def __init__(
        self,
        broker: BrokerParts,
        hosted: HostedSegment,
        name: str,
        lane: pb.Lane = pb.LANE_BULK,
        caller: Caller = OPEN_CALLER,
        epoch: int = 1,
    ) -> None:
        self.stream = PutStream(hosted.wire.message)
        self.replies: list[pb.ProducerReply] = []
        self.acked: dict[int, int] = {}
        self.error: BaseException | None = None
        """Why the lane has ended."""
        self.ended = False
        self.throttled = 0
        """How long the last reply said that a quota holds back what comes next, in microseconds."""
        served = broker.lane(self.stream, broker.hello(hosted.topic.uid, lane), caller)
        for run in (lambda: self.stream.serve(lambda _: served.serve()), self._read):
            threading.Thread(target=run, name="client", daemon=True).start()
        frame = pb.ProducerFrame()
        hello = pb.ProducerHello(producer=name, epoch=epoch, instance=f"{name}-{epoch}"[-64:])
        frame.opens.add(session=self.SESSION, segment=hosted.name, producer=hello)
        self.stream.write_metadata(frame.SerializeToString())

    def send(self, sequence: int, batch: pa.RecordBatch, **more: Any) -> None:
        """``more``: further fields of the sub-batch."""
        frame = self._frame(sequence, rows=batch.num_rows, **more)
        self.stream.write_with_metadata(batch, frame.SerializeToString())

    def publish(self, sequence: int, reference: Reference, rejections: int = 0) -> None:
        frame = self._frame(sequence, reference=reference_to_pb(reference), rejections=rejections)
        self.stream.write_metadata(frame.SerializeToString())

    def _frame(self, sequence: int, **what: Any) -> pb.ProducerFrame:
        frame = pb.ProducerFrame()
        frame.sub_batches.add(session=self.SESSION, sequence=sequence, **what)
        return frame

    def wait_acked(self, sequence: int) -> int:
        eventually(lambda: sequence in self.acked, what=f"{sequence} is acked: {self.replies}")
        return self.acked[sequence]

    def wait_reply(self, kind: str) -> pb.ProducerReply:
        def found() -> pb.ProducerReply | None:
            return next((reply for reply in self.replies if reply.WhichOneof("reply") == kind), None)

        reply = eventually(found, what=f"a reply {kind}")
        assert reply is not None
        return reply

    def close(self) -> None:
        self.stream.done_writing()

    def _read(self) -> None:
        try:
            while (body := self.stream.read()) is not None:
                frame = pb.ProducerFrameReply.FromString(body)
                self.throttled = frame.throttled
                for it in frame.sessions:
                    self.acked |= dict(enumerate(it.reply.acks.first_offsets, it.reply.acks.first_sequence))
                    self.replies.append(it.reply)
                if frame.HasField("error"):
                    self.error = error_from_pb(frame.error)
        except (pa.ArrowException, OSError):
            pass
        finally:
            self.ended = True
