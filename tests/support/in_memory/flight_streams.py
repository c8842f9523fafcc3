"""Streams of Arrow Flight without a network: a client writes, a handler of the server reads, and vice versa."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.flight as fl

from smq_core.errors import SmqError
from smq_proto.flight import to_flight
from support.waiting import HANG_GUARD


@dataclass(frozen=True, slots=True)
class Chunk:
    """What Flight's ``read_chunk`` returns."""

    data: pa.RecordBatch | None
    app_metadata: bytes | None


@dataclass
class PutStream:
    """One DoPut: the writer and the reader of the client, and those of the server's handler, in one object."""

    schema: pa.Schema
    requests: queue.SimpleQueue[Chunk | BaseException | None] = field(default_factory=queue.SimpleQueue)
    replies: queue.SimpleQueue[bytes | BaseException | None] = field(default_factory=queue.SimpleQueue)
    broken: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    """The server's handler has returned."""
    client_done: threading.Event = field(default_factory=threading.Event)
    """The client writes nothing more."""
    _error: BaseException | None = None

    def serve(self, handler: Callable[[PutStream], None]) -> None:
        """Runs the server's handler, and gives its error to the client as Flight does."""
        try:
            handler(self)
        except SmqError as error:
            self._error = to_flight(error)
        except fl.FlightError as error:
            self._error = error
        finally:
            self.replies.put(self._error)
            self.ended.set()

    def break_connection(self) -> None:
        """Both sides lose the stream: the server reads its end, the client an error."""
        self.broken.set()
        self.requests.put(None)
        self.replies.put(fl.FlightUnavailableError("connection reset"))

    # ---- the client's writer

    def write_with_metadata(self, batch: pa.RecordBatch, metadata: bytes) -> None:
        self._send(Chunk(batch, metadata))

    def write_metadata(self, metadata: bytes) -> None:
        self._send(Chunk(None, metadata))

    def done_writing(self) -> None:
        self.client_done.set()
        self.requests.put(None)

    def close(self) -> None:
        self.requests.put(None)
        if self.broken.is_set():
            raise fl.FlightUnavailableError("connection reset")
        self.ended.wait(HANG_GUARD)
        if self._error is not None:
            raise self._error

    def _send(self, chunk: Chunk) -> None:
        if self.broken.is_set() or self.ended.is_set():
            raise fl.FlightUnavailableError("connection reset")
        self.requests.put(chunk)

    # ---- the client's reader

    def read(self) -> bytes | None:
        reply = self.replies.get()
        if isinstance(reply, BaseException):
            raise reply
        return reply

    # ---- the server's reader and writer

    def read_chunk(self) -> Chunk:
        chunk = self.requests.get()
        if chunk is None:
            raise StopIteration
        if isinstance(chunk, BaseException):
            raise chunk
        return chunk

    def write(self, reply: bytes) -> None:
        if self.broken.is_set():
            raise OSError("connection reset")
        self.replies.put(reply)


class InMemoryFlightClient:
    """``do_put`` runs ``handler(descriptor's command, stream)`` in a thread, as a server would."""

    def __init__(self, handler: Callable[[bytes, PutStream], None]) -> None:
        self._handler = handler
        self.streams: list[PutStream] = []

    def do_put(self, descriptor: fl.FlightDescriptor, schema: pa.Schema) -> tuple[PutStream, PutStream]:
        stream = PutStream(schema)
        self.streams.append(stream)
        command = descriptor.command

        def run() -> None:
            stream.serve(lambda it: self._handler(command, it))

        threading.Thread(target=run, name="server", daemon=True).start()
        return stream, stream


class CallContext:
    """The context of a Flight call."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()

    def is_cancelled(self) -> bool:
        return self.cancelled.is_set()
