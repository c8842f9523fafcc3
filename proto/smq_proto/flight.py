"""Arrow Flight with this project's errors: an SmqError crosses the wire with its fields, as ``extra_info``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

import pyarrow as pa
import pyarrow.flight as fl
from google.protobuf.message import DecodeError, Message

from smq_core.access.certificates import Certificate
from smq_core.access.peers import broker_server_name
from smq_core.errors import InvalidRequest, SmqError, Unavailable, Unreachable
from smq_core.model.names import bounded
from smq_proto.connection_failures import cause_of
from smq_proto.error_conversion import error_from_pb, error_to_pb
from smq_proto.v1 import data_pb2 as pb

M = TypeVar("M", bound=Message)


def connect(
    address: str, incarnation: str, certificate: Certificate | None, options: Sequence[tuple[str, str | int]]
) -> fl.FlightClient:
    """A client of the broker with this incarnation at host:port. Nothing is sent before its first call.

    With a ``certificate`` both sides show theirs, and the broker's must name its incarnation. ``options`` are those of
    the gRPC channel.
    """
    if certificate is None:
        return fl.connect(f"grpc://{address}", generic_options=list(options))
    return fl.connect(
        f"grpc+tls://{address}",
        tls_root_certs=certificate.roots,
        cert_chain=certificate.chain,
        private_key=certificate.key,
        override_hostname=broker_server_name(incarnation),
        generic_options=list(options),
    )


def to_flight(error: SmqError) -> fl.FlightServerError:
    """The exception that a Flight server raises to send this error to the client."""
    return fl.FlightServerError(bounded(error.message), error_to_pb(error).SerializeToString())


def from_flight(error: BaseException) -> SmqError:
    """The SmqError that a broker sent with a Flight client's exception; Unreachable if there is none."""
    info = getattr(error, "extra_info", None)
    reason = str(error).splitlines()[0][:300]
    if not info:
        return Unreachable(f"the broker did not answer: {cause_of(reason)}")
    try:
        return error_from_pb(pb.Error.FromString(info))
    except DecodeError:
        return Unavailable(f"the broker's answer cannot be decoded: {reason}")


class _FlightErrors:
    """A class, because the context manager of a generator takes several times as long, for every message."""

    __slots__ = ()

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (pa.ArrowException, OSError)):
            raise from_flight(error) from error


_FLIGHT_ERRORS = _FlightErrors()


def flight_errors() -> AbstractContextManager[None]:
    """Turns Flight's and Arrow's exceptions into SmqErrors."""
    return _FLIGHT_ERRORS


def parse(kind: type[M], body: object) -> M:
    """Decodes a message of this kind. Raises InvalidRequest if it is something else."""
    try:
        return kind.FromString(bytes(memoryview(body)))  # type: ignore[arg-type]
    except (DecodeError, TypeError, ValueError) as error:
        raise InvalidRequest(f"not a {kind.DESCRIPTOR.full_name}: {error}") from error


def call(client: fl.FlightClient, action: str, request: Message, *, timeout: float) -> bytes:
    """Runs one action and returns the body of its only result (empty if it has none). ``timeout`` in seconds."""
    options = fl.FlightCallOptions(timeout=timeout)
    with flight_errors():
        results = list(client.do_action(fl.Action(action, request.SerializeToString()), options))
    return results[0].body.to_pybytes() if results else b""
