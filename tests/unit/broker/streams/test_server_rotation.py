"""A Flight server is replaced by one with another certificate, under load and in the same process."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from smq_broker.runtime.broker_metrics import BrokerMetrics
from smq_broker.runtime.threads import ThreadSupervisor
from smq_broker.streams import server_rotation
from smq_broker.streams.server_rotation import ServerRotation
from smq_core.access.peers import Role
from smq_core.model.addresses import join_address
from support.processes.secure_leader_stub import Release
from support.waiting import HANG_GUARD, eventually

INCARNATION = "i-1"
SCHEMA = pa.schema([("n", pa.int64())])
SWAPS = 3


class EchoServer(fl.FlightServerBase):  # type: ignore[misc]
    """Answers each batch of a stream, and each action, with its number."""

    def __init__(self, listen: str, release: Release, number: int) -> None:
        self.number = number
        certificate = release.broker(INCARNATION)
        super().__init__(
            f"grpc+tls://{listen}",
            tls_certificates=[(certificate.chain, certificate.key)],
            verify_client=True,
            root_certificates=certificate.roots,
        )

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        for chunk in reader:
            writer.write(chunk.app_metadata)

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        return [str(self.number).encode()]


class Rotating:
    def __init__(self, folder: Path) -> None:
        self.release = Release(folder)
        self.threads = ThreadSupervisor(BrokerMetrics(CollectorRegistry()))
        self.servers: list[EchoServer] = []
        self.rotation = ServerRotation("127.0.0.1:0", self.make, self.threads)
        self.address = join_address("127.0.0.1", self.rotation.port)

    def make(self, listen: str) -> EchoServer:
        server = EchoServer(listen, self.release, len(self.servers))
        self.servers.append(server)
        return server

    def connect(self) -> fl.FlightClient:
        return self.release.connect(self.address, INCARNATION, self.release.certificate(Role.CLIENT, "ada"))

    def serial(self) -> str:
        """That of the certificate that the server shows."""
        context = ssl.create_default_context(cadata=self.release.authority.roots.decode())
        context.check_hostname = False
        context.load_cert_chain(*self._files())
        with (
            socket.create_connection(("127.0.0.1", self.rotation.port), HANG_GUARD) as plain,
            context.wrap_socket(plain) as connection,
        ):
            return str((connection.getpeercert() or {})["serialNumber"])

    def _files(self) -> tuple[Path, Path]:
        certificate = self.release.certificate(Role.CLIENT, "ada")
        folder = self.release.ca_file.parent
        chain, key = folder / "client.crt", folder / "client.key"
        chain.write_bytes(certificate.chain)
        key.write_bytes(certificate.key)
        return chain, key


@pytest.fixture
def rotating(tmp_path: Path) -> Iterator[Rotating]:
    with capture_logs():
        made = Rotating(tmp_path)
        yield made
        made.servers[-1].shutdown()


def repeat(stop: threading.Event, action: Callable[[], object]) -> threading.Thread:
    def run() -> None:
        while not stop.is_set():
            action()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_streams_go_on_and_new_connections_get_through_while_servers_are_swapped(rotating: Rotating) -> None:
    client = rotating.connect()
    writer, reader = client.do_put(fl.FlightDescriptor.for_command(b"x"), SCHEMA)
    batch = pa.record_batch([pa.array([1])], schema=SCHEMA)
    stop, sent, answered, longest, refused = threading.Event(), [], [], [0.0], [0]  # type: ignore[var-annotated]

    def send() -> None:
        began = time.monotonic()
        writer.write_with_metadata(batch, str(len(sent)).encode())
        sent.append(1)
        answered.append(int(reader.read().to_pybytes()))
        longest[0] = max(longest[0], time.monotonic() - began)

    refused_since: list[float] = []
    gaps = [0.0]
    numbers: set[int] = set()

    def call() -> None:
        """As a client that has no connection yet: one attempt after the other until it is served."""
        try:
            with rotating.connect() as other:
                numbers.add(
                    int(next(iter(other.do_action("x", fl.FlightCallOptions(timeout=HANG_GUARD)))).body.to_pybytes())
                )
        except fl.FlightUnavailableError:
            refused[0] += 1
            refused_since[:1] = refused_since[:1] or [time.monotonic()]
        else:
            gaps.append(time.monotonic() - refused_since.pop() if refused_since else 0.0)

    threads = [repeat(stop, send), repeat(stop, call)]
    serials = {rotating.serial()}
    for number in range(1, SWAPS + 1):
        rotating.rotation.swap()
        assert rotating.threads.process_failure is None
        eventually(lambda number=number: number in numbers, what="the next server answers")  # type: ignore[misc]
        serials.add(rotating.serial())
    before = len(answered)
    eventually(lambda: len(answered) > before + 10, what="the stream of the first server goes on")
    stop.set()
    for thread in threads:
        thread.join(HANG_GUARD)
    assert len(serials) == SWAPS + 1, "each server shows another certificate"
    assert answered == list(range(len(sent)))
    print(f"{SWAPS} swaps: {len(answered)} answers, the longest after {longest[0] * 1000:.0f} ms;", end=" ")
    print(f"{refused[0]} connections refused, for at most {max(gaps) * 1000:.0f} ms")
    writer.done_writing()
    writer.close()
    client.close()


def test_a_former_server_ends_when_its_last_stream_has(rotating: Rotating) -> None:
    client = rotating.connect()
    writer, reader = client.do_put(fl.FlightDescriptor.for_command(b"x"), SCHEMA)
    writer.write_with_metadata(pa.record_batch([pa.array([1])], schema=SCHEMA), b"0")
    reader.read()

    def waiting() -> bool:
        return any(thread.name == "server-shutdown" for thread in threading.enumerate())

    rotating.rotation.swap()
    assert waiting()
    writer.done_writing()
    writer.close()
    client.close()
    eventually(lambda: not waiting(), what="the former server has ended")


def test_a_port_that_another_has_taken_ends_the_process(rotating: Rotating, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_rotation, "MAX_BIND_SECONDS", 0.2)
    former = rotating.servers[0]
    taken: list[socket.socket] = []

    def shut_down_and_take() -> None:
        fl.FlightServerBase.shutdown(former)
        taken.append(socket.create_server(("127.0.0.1", rotating.rotation.port)))

    def make(listen: str) -> EchoServer:
        eventually(lambda: taken)
        return EchoServer(listen, rotating.release, 1)

    former.shutdown = shut_down_and_take
    monkeypatch.setattr(rotating.rotation, "_make", make)
    rotating.rotation.swap()
    assert "listen on port" in (rotating.threads.process_failure or "")
    taken[0].close()
