"""A real ``smq-operator local`` with its brokers, and its control API."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import grpc

from smq_core.access.peers import LEADER_SERVER_NAME
from smq_core.errors import SmqError
from smq_proto.error_conversion import error_from_pb
from smq_proto.v1 import admin_pb2, topics_pb2
from smq_proto.v1 import data_pb2 as pb
from smq_storage.object_store.store import StoreSettings
from smq_storage.process.ports import free_port
from support.leader_services import call_of
from support.processes.recorded import kill_recorded
from support.waiting import HANG_GUARD, eventually


def manifest(name: str = "t", **spec: object) -> str:
    """A Topic manifest as JSON; ``spec`` is added to a small one."""
    body = {"partitions": 64} | spec
    return json.dumps(
        {"apiVersion": "seaweedmq.io/v1alpha1", "kind": "Topic", "metadata": {"name": name}, "spec": body}
    )


def error_of(rejection: grpc.RpcError) -> SmqError:
    """The SmqError in the trailer of a failed call."""
    for key, value in rejection.trailing_metadata():  # type: ignore[attr-defined]
        if key == "smq-error-bin":
            return error_from_pb(pb.Error.FromString(value))
    raise AssertionError(f"no smq-error-bin in the trailer of {rejection!r}")


class LeaderProcess:
    """``folder`` is the leader's. ``start`` after a kill adopts the running brokers, at the same address."""

    def __init__(self, folder: Path, store: StoreSettings, *flags: str, brokers: int = 3) -> None:
        self.folder = folder
        self.store = store
        self._flags = self._process_flags = flags
        self._brokers = brokers
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: grpc.Channel | None = None
        self._seen: set[tuple[int, int | None]] = set()
        """Pid and start of each broker."""
        self._port = free_port()
        self.address = self.http = ""
        self.log = folder / "leader.log"

    # ---- the process

    def launch(self, *flags: str) -> subprocess.Popen[bytes]:
        """Starts the process and returns at once."""
        self._process_flags = (*self._flags, *flags)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = self.folder / f"leader-{uuid.uuid4().hex[:6]}.log"
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "SMQ_"))}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "smq_operator.main", "local", "--dir", str(self.folder)),
                    *("--listen", f"127.0.0.1:{self._port}", "--http", "127.0.0.1:0", "--brokers", str(self._brokers)),
                    *("--log-level", "debug", *self._process_flags),
                ],
                env=clean | self.store.to_env(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return self._process

    def start(self, *flags: str) -> Self:
        """Starts the process and waits until it leads."""
        self.launch(*flags)
        return self.wait_ready()

    def wait_ready(self) -> Self:
        """Returns when it leads."""

        def ready() -> dict[str, str]:
            assert self.process.poll() is None, f"the leader ended:\n{self.log.read_text()[-3000:]}"
            return self.events("leader.ready")[0]

        received = eventually(ready, what=f"the leader is ready; see {self.log}")
        self.address, self.http = received["address"], f"127.0.0.1:{received['http']}"
        if self._channel is not None:
            self._channel.close()
        self._channel = self._connect()
        return self

    def _connect(self) -> grpc.Channel:
        """As the administrator, if the leader knows callers."""
        if "--security=required" not in self._process_flags:
            return grpc.insecure_channel(self.address)
        return self.secure_channel((self.folder / "security" / "admin.token").read_text())

    def secure_channel(self, token: str) -> grpc.Channel:
        """A channel of a caller with this token; empty for none."""
        credentials = grpc.ssl_channel_credentials((self.folder / "security" / "ca.crt").read_bytes())
        if token:
            bearer = grpc.access_token_call_credentials(token)
            credentials = grpc.composite_channel_credentials(credentials, bearer)
        options = [("grpc.ssl_target_name_override", LEADER_SERVER_NAME), ("grpc.use_local_subchannel_pool", 1)]
        return grpc.secure_channel(self.address, credentials, options)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def kill(self) -> None:
        """kill -9; its brokers continue."""
        self.process.kill()
        self.process.wait()

    def move(self) -> None:
        """The next start uses another address."""
        self._port = free_port()

    def terminate(self) -> int:
        """SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(HANG_GUARD)

    def stop(self) -> None:
        """Ends the leader and every broker that it ever started."""
        self.pids()
        if self._process is not None and self._process.poll() is None:
            self.kill()
        self.pids()
        for pid, started in self._seen:
            kill_recorded(pid, started)

    def events(self, name: str) -> list[dict[str, str]]:
        """The leader's log entries of that event."""
        lines = self.log.read_text(errors="replace").splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{") and f'"{name}"' in line]
        return [event for event in found if event.get("event") == name]

    def http_get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{self.http}{path}", timeout=HANG_GUARD) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    # ---- brokers

    def record(self, broker: str) -> dict[str, object]:
        found: dict[str, object] = json.loads((self.folder / "brokers" / f"{broker}.json").read_text())
        return found

    def pid(self, broker: str) -> int:
        """The pid of the broker that has this name now."""
        record = self.record(broker)
        pid, started = record["pid"], record["started"]
        assert isinstance(pid, int) and (started is None or isinstance(started, int))
        self._seen.add((pid, started))
        return pid

    def pids(self) -> dict[str, int]:
        found = {}
        for path in (self.folder / "brokers").glob("*.json"):
            with contextlib.suppress(AssertionError, ValueError, OSError):
                found[path.stem] = self.pid(path.stem)
        return found

    def kill_broker(self, broker: str) -> str:
        """kill -9. Returns the incarnation of the killed process."""
        incarnation = str(self.record(broker)["incarnation"])
        os.kill(self.pid(broker), signal.SIGKILL)
        return incarnation

    # ---- the control API

    def method(self, name: str) -> Callable[..., Any]:
        assert self._channel is not None
        return call_of(self._channel, name)

    def call(self, method: str, request: object, timeout: float = HANG_GUARD) -> object:
        """Calls a method. Raises the SmqError of a failed call."""
        try:
            return self.method(method)(request, timeout=timeout)
        except grpc.RpcError as rejection:
            raise error_of(rejection) from rejection

    def apply(self, text: str) -> admin_pb2.ApplyTopicReply:
        reply = self.call("ApplyTopic", admin_pb2.ApplyTopicRequest(manifest=text))
        assert isinstance(reply, admin_pb2.ApplyTopicReply)
        return reply

    def locate(self, topic: str = "t") -> pb.LocateReply:
        reply = self.call("Locate", pb.LocateRequest(topic=topic))
        assert isinstance(reply, pb.LocateReply)
        return reply

    def topic(self, name: str) -> admin_pb2.TopicList.Topic:
        reply = self.call("ListTopics", admin_pb2.ListTopicsRequest())
        assert isinstance(reply, admin_pb2.TopicList)
        return next(t for t in reply.topics if t.info.name == f"default/{name}")

    def condition(self, name: str, kind: str) -> admin_pb2.Condition:
        return next(c for c in self.topic(name).conditions if c.type == kind)

    def history(self, topic: str = "t") -> list[pb.Segment]:
        reply = self.call("History", topics_pb2.HistoryRequest(topic=topic))
        assert isinstance(reply, topics_pb2.HistoryReply)
        return list(reply.segments)

    def brokers(self) -> list[admin_pb2.BrokerList.Broker]:
        reply = self.call("ListBrokers", admin_pb2.ListBrokersRequest())
        assert isinstance(reply, admin_pb2.BrokerList)
        return list(reply.brokers)

    def alive(self) -> dict[str, str]:
        """Name and incarnation of the brokers that are alive."""
        return {b.name: b.incarnation for b in self.brokers() if b.state == admin_pb2.BrokerList.Broker.ALIVE}

    def wait_for_brokers(self, count: int | None = None) -> None:
        wanted = self._brokers if count is None else count
        eventually(lambda: len(self.alive()) >= wanted, what=f"{wanted} brokers alive; see {self.log}")

    def wait_until_open(self, topic: str = "t", *, without: str = "") -> list[pb.Segment]:
        """The segments, once all are open and, with ``without``, none names this incarnation."""

        def quiet() -> list[pb.Segment]:
            segments = list(self.locate(topic).layout.segments)
            assert segments
            for segment in segments:
                assert segment.phase == pb.PHASE_OPEN and not segment.successors, segment.name
                assert without not in [r.incarnation for r in segment.replicas], segment.name
            return segments

        return eventually(quiet, what=f"the layout of {topic} is quiet; see {self.log}")


@contextlib.contextmanager
def watching(leader: LeaderProcess, topic: str = "t") -> Iterator[Callable[[], list[pb.LocateReply]]]:
    """Watches a topic. Returns a function that returns the replies so far."""
    received: list[pb.LocateReply] = []
    call = leader.method("Watch")(topics_pb2.WatchRequest(topic=topic))

    def follow() -> None:
        with contextlib.suppress(grpc.RpcError):
            for reply in call:
                received.append(reply)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield lambda: list(received)
    finally:
        call.cancel()
        thread.join(HANG_GUARD)
