"""Real broker processes, and a leader's requests to them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.flight as fl
from google.protobuf.empty_pb2 import Empty

from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Durability, Phase, Replica, Segment, Topic, TopicSpec, segment_name
from smq_core.model.keyspace import KeyRange
from smq_proto.flight import call
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL, outcome_from_pb, segment_to_pb, topic_to_pb
from smq_storage.object_store.store import StoreSettings
from support.processes.stored_layouts import plan_open, plan_seal
from support.waiting import HANG_GUARD, eventually


class BrokerProcess:
    """One ``smq-broker``. Its log is ``<folder>/<name>.log``, with one JSON object per line."""

    def __init__(
        self, folder: Path, name: str, store: StoreSettings, *flags: str, env: dict[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = folder / f"{name}-{uuid.uuid4().hex[:6]}.log"
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "SMQ_"))}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "smq_broker.main", "--name", name, "--log-format", "json", *flags],
                env=clean | store.to_env() | (env or {}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._store = store
        self._client: fl.FlightClient | None = None
        self.address = self.http = self.incarnation = ""

    def wait_ready(self) -> BrokerProcess:
        def found() -> dict[str, str]:
            assert self._process.poll() is None, f"the broker ended:\n{self.log.read_text()[-3000:]}"
            return self.event("broker.ready")

        ready = eventually(found, what=f"{self.name} is ready; see {self.log}")
        self.address, self.http, self.incarnation = ready["address"], ready["http"], ready["incarnation"]
        return self

    def events(self, name: str) -> list[dict[str, str]]:
        lines = self.log.read_text(errors="replace").splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{") and f'"{name}"' in line]
        return [event for event in found if event.get("event") == name]

    def event(self, name: str) -> dict[str, str]:
        return self.events(name)[0]

    @property
    def replica(self) -> Replica:
        return Replica(self.name, self.incarnation, self.address)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def flight(self) -> fl.FlightClient:
        if self._client is None:
            options = [("grpc.use_local_subchannel_pool", 1)]
            self._client = fl.connect(f"grpc://{self.address}", generic_options=options)
        return self._client

    @flight.setter
    def flight(self, client: fl.FlightClient) -> None:
        """Actions go over this connection from now on."""
        self._client = client

    # ---- actions

    def open(self, topic: Topic, segment: Segment, *, incarnation: str = "", planned: bool = True) -> pb.OpenedSegment:
        """With ``planned`` the stored layout has the segment before, as it has when a leader requests this."""
        if planned:
            plan_open(self._store.open(), topic, segment)
        request = pb.OpenSegment(
            protocol=PROTOCOL,
            topic=topic_to_pb(topic),
            segment=segment_to_pb(segment),
            incarnation=incarnation or self.incarnation,
        )
        return pb.OpenedSegment.FromString(call(self.flight, "open", request, timeout=HANG_GUARD))

    def seal(
        self,
        topic: Topic,
        segment: Segment,
        successors: Sequence[Segment] = (),
        *,
        incarnation: str = "",
        timeout: float = HANG_GUARD,
        planned: bool = True,
    ) -> SealOutcome:
        if planned:
            plan_seal(self._store.open(), topic, segment)
        request = pb.SealSegment(
            protocol=PROTOCOL,
            topic=topic.name,
            uid=topic.uid,
            segment=segment.name,
            incarnation=incarnation or self.incarnation,
            reason="test",
            successors=[segment_to_pb(s) for s in successors],
        )
        return outcome_from_pb(pb.SealOutcome.FromString(call(self.flight, "seal", request, timeout=timeout)))

    def flush(self, topic: Topic, segment: Segment) -> None:
        plan_seal(self._store.open(), topic, segment)
        request = pb.SealSegment(
            protocol=PROTOCOL,
            topic=topic.name,
            uid=topic.uid,
            segment=segment.name,
            incarnation=self.incarnation,
            only_flush=True,
        )
        call(self.flight, "seal", request, timeout=HANG_GUARD)

    def outcome(self, topic: Topic, segment: Segment, producer: str = "") -> pb.SealOutcome:
        request = pb.OutcomeRequest(topic=topic.name, uid=topic.uid, segment=segment.name, producer=producer)
        return pb.SealOutcome.FromString(call(self.flight, "outcome", request, timeout=HANG_GUARD))

    def status(self) -> pb.BrokerStatus:
        return pb.BrokerStatus.FromString(call(self.flight, "status", Empty(), timeout=HANG_GUARD))

    def report(self, segment: Segment) -> pb.SegmentReport:
        return next(s for s in self.status().segments if s.segment == segment.name)

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of a GET from the HTTP port."""
        try:
            with urllib.request.urlopen(f"http://{self.http}{path}", timeout=HANG_GUARD) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    # ---- the process

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def memory(self) -> int:
        """Resident bytes."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def pause(self) -> None:
        """Stops the process and returns when all its threads have stopped."""
        self._process.send_signal(signal.SIGSTOP)
        tasks = Path(f"/proc/{self.pid}/task")
        eventually(lambda: all((t / "stat").read_text().rsplit(")", 1)[1].split()[0] == "T" for t in tasks.iterdir()))

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def wait(self) -> int:
        return self._process.wait(HANG_GUARD)


@dataclass
class BrokerProcesses:
    """Starts brokers on one store. Kills the remaining ones at the end."""

    folder: Path
    store: StoreSettings
    started: list[BrokerProcess] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, *names: str, flags: Sequence[str] = (), wait: bool = True) -> list[BrokerProcess]:
        made = [BrokerProcess(self.folder, name, self.store, *flags) for name in names]
        self.started += made
        return [broker.wait_ready() if wait else broker for broker in made]

    def stop(self) -> None:
        for broker in self.started:
            if broker.running:
                broker.kill()


def make_topic(name: str = "default/t", **spec: object) -> Topic:
    return Topic(name, f"uid-{uuid.uuid4().hex[:8]}", TopicSpec(**spec))  # type: ignore[arg-type]


def make_segment(
    topic: Topic,
    *replicas: Replica,
    number: int = 0,
    start: int = 0,
    stop: int | None = None,
    predecessors: Sequence[Segment] = (),
) -> Segment:
    """A segment as a leader would plan it. With one replica it is Stored."""
    range_ = KeyRange(start, stop or topic.spec.partitions)
    return Segment(
        name=segment_name(topic.name, range_, number),
        number=number,
        range=range_,
        phase=Phase.PENDING if predecessors else Phase.OPEN,
        durability=Durability.REPLICATED if len(replicas) > 1 else Durability.STORED,
        replicas=replicas,
        predecessors=tuple(p.name for p in predecessors),
    )
