"""The Flight server: parses requests, dispatches them, and turns every exception into an SmqError for the client."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import structlog
from google.protobuf.message import Message

from smq_broker.access.callers import Access, Caller
from smq_broker.producers.producer_lane import ProducerLane
from smq_broker.producers.upload_checker import UploadChecker
from smq_broker.replication.follower_lane import FollowerLane, PrimaryConnections
from smq_broker.replication.message_spacing import ActiveClients
from smq_broker.runtime.broker_metrics import BrokerMetrics
from smq_broker.runtime.log_limiter import LogLimiter
from smq_broker.runtime.threads import ThreadSupervisor
from smq_broker.segments.hosted_segment import HostedSegment
from smq_broker.segments.registry import SegmentRegistry
from smq_broker.streams.actions import ActionCall, Actions
from smq_broker.streams.batch_reader import BatchReader
from smq_broker.streams.frame_spacing import FrameRate, FrameSpacing
from smq_broker.streams.request_limit import RequestLimit
from smq_broker.streams.tail import Frame, tail_frames
from smq_core.access.broker_calls import PRODUCERS, REPLICA, TAIL
from smq_core.access.certificates import Certificate
from smq_core.errors import InvalidRequest, PermissionDenied, SmqError, Unauthenticated
from smq_proto.error_conversion import error_to_pb
from smq_proto.flight import parse, to_flight
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import check_protocol

log = structlog.get_logger(__name__)


class RequestHandler:
    """Serves what comes to all Flight servers of this process, at present and before.

    ``accepting_batches`` is cleared when producers have to wait.
    """

    def __init__(
        self,
        *,
        access: Access,
        registry: SegmentRegistry,
        actions: Actions,
        broker_metrics: BrokerMetrics,
        threads: ThreadSupervisor,
        accepting_batches: threading.Event,
        max_batch: int,
        uploads: UploadChecker,
        clients: ActiveClients,
        limit: RequestLimit,
    ) -> None:
        self._access = access
        self._registry = registry
        self._actions = actions
        self._metrics = broker_metrics
        self._threads = threads
        self._log_limiter = LogLimiter()
        self._accepting_batches = accepting_batches
        self._max_batch = max_batch
        self._uploads = uploads
        self._clients = clients
        self._limit = limit
        self._frame_rate = FrameRate()
        self._connections = PrimaryConnections()

    def with_access(self, access: Access) -> RequestHandler:
        """The same, for callers that are recognised in another way."""
        other = copy.copy(self)
        other._access = access
        return other

    def put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        with self._errors("put"):
            caller = self._access.caller(context)
            hello = parse(pb.PutOpen, self._limit.check(descriptor.command or b""))
            role = hello.WhichOneof("role")
            if role is None:
                raise InvalidRequest("a stream is opened as a lane of producers or of a replica")
            with self._metrics.streams.labels(role).track_inprogress():
                if role == "replica":
                    self._serve_replica(caller, hello, BatchReader(reader), writer)
                else:
                    self._serve_producers(caller, hello, BatchReader(reader), writer)

    def _serve_producers(self, caller: Caller, hello: pb.PutOpen, reader: Any, writer: Any) -> None:
        try:
            caller.admit(PRODUCERS)
            caller.require(hello.uid)
            self._check(hello, hello.producers.lane)
            quota = caller.open_stream(hello.uid)
        except SmqError as error:
            _send_error_reply(writer, pb.ProducerFrameReply(error=error_to_pb(error)))
            raise
        with closing(quota):
            ProducerLane(
                self._registry,
                caller=caller,
                quota=quota,
                hello=hello,
                reader=reader,
                writer=writer,
                max_batch=self._max_batch,
                accepting_batches=self._accepting_batches,
                uploads=self._uploads,
                broker_metrics=self._metrics,
                threads=self._threads,
                clients=self._clients,
            ).serve()

    def _serve_replica(self, caller: Caller, hello: pb.PutOpen, reader: Any, writer: Any) -> None:
        try:
            caller.admit(REPLICA)
            caller.require_incarnation(hello.replica.primary_incarnation)
            self._check(hello, hello.replica.lane)
        except SmqError as error:
            _send_error_reply(writer, pb.ReplicationFrameReply(error=error_to_pb(error)))
            raise
        FollowerLane(
            self._registry,
            caller=caller,
            connections=self._connections,
            hello=hello,
            reader=reader,
            writer=writer,
        ).serve()

    def _check(self, hello: pb.PutOpen, lane: pb.Lane) -> None:
        check_protocol(hello.protocol)
        self._registry.check_incarnation(hello.incarnation)
        if lane not in (pb.LANE_SMALL, pb.LANE_BULK):
            raise InvalidRequest("a lane is a small one or a bulk one")

    def get(self, context: Any, ticket: Any) -> Any:
        with self._errors("get"):
            caller = self._access.caller(context)
            caller.admit(TAIL)
            request = parse(pb.TailTicket, self._limit.check(ticket.ticket))
            check_protocol(request.protocol)
            caller.require(request.uid)
            hosted = self._registry.find(request.segment, request.uid, request.incarnation)
            spacing = FrameSpacing(self._frame_rate, max(1, request.readers))
            frames = tail_frames(hosted, request.from_offset, context, spacing, caller)
            return fl.GeneratorStream(hosted.wire.message, self._tracked(hosted, frames, spacing))

    def act(self, context: Any, action: Any) -> list[bytes]:
        name = self._actions.known_name(action.type)
        with self._errors(name):
            caller = self._access.caller(context)
            self._actions.check_name(action.type)
            caller.admit(name)
            call = ActionCall(self._limit.check(action.body), context.is_cancelled, caller)
            answer = self._actions.run(name, call)
            return [] if answer is None else [answer.SerializeToString()]

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        with self._errors("list"):
            self._access.caller(context)
            return list(self._actions.descriptions())

    def _tracked(self, hosted: HostedSegment, frames: Iterator[Frame], spacing: FrameSpacing) -> Iterator[Frame]:
        hosted.memory.reader_opened()
        try:
            with self._errors("tail"), self._metrics.streams.labels("reader").track_inprogress():
                yield from frames
        finally:
            spacing.mark_idle()
            hosted.memory.reader_closed()

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Turns every exception into a Flight error that carries an SmqError; logs bugs with their traceback.

        All are counted. Of the lines about one kind of error, one in ten seconds is logged, with the number of others.
        """
        try:
            yield
        except SmqError as error:
            self._metrics.errors.labels(error.code).inc()
            self._log_rejection(what, error)
            raise to_flight(error) from None
        except fl.FlightError:
            raise
        except GeneratorExit:
            raise
        except Exception as error:
            self._metrics.errors.labels("Internal").inc()
            left_out = self._log_limiter.admit((what, type(error)))
            if left_out is not None:
                log.exception("request.failed", what=what, left_out=left_out)
            raise to_flight(SmqError(f"the broker failed: {type(error).__name__}: {error}")) from None

    def _log_rejection(self, what: str, error: SmqError) -> None:
        """An invalid request is the client's fault, and a warning. Other refusals are normal while segments move."""
        if isinstance(error, Unauthenticated | PermissionDenied):
            return  # ``Denials`` has logged it
        left_out = self._log_limiter.admit((what, error.code))
        if left_out is not None:
            line = log.warning if isinstance(error, InvalidRequest) else log.info
            line("request.refused", what=what, code=error.code, error=error.message, left_out=left_out)


class BrokerServer(fl.FlightServerBase):  # type: ignore[misc]
    """One Flight server. With a certificate it speaks mutual TLS only. ``port`` is the bound port."""

    def __init__(self, listen: str, handler: RequestHandler, certificate: Certificate | None = None) -> None:
        self._handler = handler
        if certificate is None:
            super().__init__(f"grpc://{listen}")
        else:
            super().__init__(
                f"grpc+tls://{listen}",
                tls_certificates=[(certificate.chain, certificate.key)],
                verify_client=True,
                root_certificates=certificate.roots,
            )

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        self._handler.put(context, descriptor, reader, writer)

    def do_get(self, context: Any, ticket: Any) -> Any:
        return self._handler.get(context, ticket)

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        return self._handler.act(context, action)

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        return self._handler.list_actions(context)


def _send_error_reply(writer: Any, reply: Message) -> None:
    """Sends the error as a reply too, because some clients only read replies. The client may be gone already."""
    with suppress(OSError, pa.ArrowException, fl.FlightError):
        writer.write(reply.SerializeToString())
