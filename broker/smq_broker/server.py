"""The Flight server: takes requests apart, hands them on, and lets nothing but SmqErrors out."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import structlog
from google.protobuf.message import Message

from smq_broker.actions import Actions
from smq_broker.held import Held
from smq_broker.holdings import Holdings
from smq_broker.meters import Meters
from smq_broker.producer_stream import ProducerStream
from smq_broker.replication_in import serve_primary
from smq_broker.tail import Frame, tail_frames
from smq_core.errors import InvalidRequest, NotHeld, SmqError
from smq_proto.flight import parse, to_flight
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import check_protocol, error_to_pb

log = structlog.get_logger()


class BrokerServer(fl.FlightServerBase):  # type: ignore[misc]
    """``intake`` is cleared when batches of producers are not taken any more. ``port`` is the port that was bound."""

    def __init__(
        self,
        listen: str,
        holdings: Holdings,
        actions: Actions,
        meters: Meters,
        intake: threading.Event,
        max_batch: int,
    ) -> None:
        self._holdings = holdings
        self._actions = actions
        self._meters = meters
        self._intake = intake
        self._max_batch = max_batch
        super().__init__(f"grpc://{listen}")

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        with self._errors("put"):
            hello = parse(pb.PutOpen, descriptor.command or b"")
            role = hello.WhichOneof("role")
            if role is None:
                raise InvalidRequest("a stream is opened as a producer's or as a replica's")
            with self._meters.streams.labels(role).track_inprogress():
                if role == "replica":
                    self._serve_primary(hello, reader, writer)
                else:
                    self._serve_producer(hello, context, reader, writer)

    def _serve_producer(self, hello: pb.PutOpen, context: Any, reader: Any, writer: Any) -> None:
        try:
            held = self._find(hello)
            if not held.is_primary:
                raise NotHeld(
                    f"this broker follows {held.name}; its primary is at {held.segment.primary.address}",
                    primary=held.segment.primary.address,
                )
            stream = ProducerStream(
                held,
                hello.producer,
                context,
                reader,
                writer,
                max_batch=self._max_batch,
                intake=self._intake,
                meters=self._meters,
            )
        except SmqError as error:
            _tell(writer, pb.ProducerReply(error=error_to_pb(error)))
            raise
        stream.serve()

    def _serve_primary(self, hello: pb.PutOpen, reader: Any, writer: Any) -> None:
        try:
            held = self._find(hello)
        except SmqError as error:
            _tell(writer, pb.ReplicationReply(error=error_to_pb(error)))
            raise
        serve_primary(held, hello.replica, reader, writer)

    def _find(self, hello: pb.PutOpen) -> Held:
        check_protocol(hello.protocol)
        return self._holdings.find(hello.segment, hello.uid, hello.incarnation)

    def do_get(self, context: Any, ticket: Any) -> Any:
        with self._errors("get"):
            request = parse(pb.TailTicket, ticket.ticket)
            check_protocol(request.protocol)
            held = self._holdings.find(request.segment, request.uid, request.incarnation)
            frames = tail_frames(held, request.from_offset, context)
            return fl.GeneratorStream(held.wire.message, self._guarded(held, frames))

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        with self._errors(action.type):
            answer = self._actions.run(action.type, action.body, context)
            return [] if answer is None else [answer.SerializeToString()]

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        return list(self._actions.known())

    def _guarded(self, held: Held, frames: Iterator[Frame]) -> Iterator[Frame]:
        held.reader_comes()
        try:
            with self._errors("tail"), self._meters.streams.labels("reader").track_inprogress():
                yield from frames
        finally:
            held.reader_leaves()

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Every exception leaves as a Flight error that carries an SmqError; bugs are logged with their traceback."""
        try:
            yield
        except SmqError as error:
            log.info("request.refused", what=what, code=error.code, error=error.message)
            self._meters.errors.labels(error.code).inc()
            raise to_flight(error) from None
        except fl.FlightError:
            raise
        except GeneratorExit:
            raise
        except Exception as error:
            log.exception("request.failed", what=what)
            self._meters.errors.labels("Internal").inc()
            raise to_flight(SmqError(f"the broker failed: {type(error).__name__}: {error}")) from None


def _tell(writer: Any, reply: Message) -> None:
    """The error as a reply too: one who only reads replies hears of it at once. Nobody may be there any more."""
    with suppress(OSError, pa.ArrowException, fl.FlightError):
        writer.write(reply.SerializeToString())
