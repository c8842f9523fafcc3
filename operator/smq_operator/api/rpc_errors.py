"""Maps SmqErrors to gRPC: a status, a message, and the whole error in the trailer ``smq-error-bin``."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol, TypeVar

import grpc
import structlog

from smq_core import errors
from smq_core.model.names import bounded
from smq_operator.runtime.readiness import Readiness
from smq_proto.error_conversion import error_to_pb

TRAILER = "smq-error-bin"

log = structlog.get_logger(__name__)

_STATUS: list[tuple[type[errors.SmqError], grpc.StatusCode]] = [
    (errors.UnknownTopic, grpc.StatusCode.NOT_FOUND),
    (errors.UnknownSegment, grpc.StatusCode.NOT_FOUND),
    (errors.Unauthenticated, grpc.StatusCode.UNAUTHENTICATED),
    (errors.PermissionDenied, grpc.StatusCode.PERMISSION_DENIED),
    (errors.InvalidRequest, grpc.StatusCode.INVALID_ARGUMENT),
    (errors.NotLeader, grpc.StatusCode.FAILED_PRECONDITION),
    (errors.Unavailable, grpc.StatusCode.UNAVAILABLE),
    (errors.Conflict, grpc.StatusCode.ABORTED),
    (errors.SmqError, grpc.StatusCode.FAILED_PRECONDITION),
]


class HasReadiness(Protocol):
    @property
    def readiness(self) -> Readiness: ...


Self = TypeVar("Self", bound=HasReadiness)
Request = TypeVar("Request")
Reply = TypeVar("Reply")
Context = grpc.aio.ServicerContext


def status_of(error: errors.SmqError) -> grpc.StatusCode:
    return next(status for kind, status in _STATUS if isinstance(error, kind))


async def abort_with(context: Context[Any, Any], error: Exception) -> None:
    """Ends the call with this error. An error that is no SmqError is a bug, and is logged."""
    if isinstance(error, errors.SmqError):
        status = status_of(error)
    else:
        log.error("request.failed", exc_info=error)
        error = errors.SmqError(f"unexpected error in the leader ({type(error).__name__}): see its log")
        status = grpc.StatusCode.INTERNAL
    trailer = ((TRAILER, error_to_pb(error).SerializeToString()),)
    await context.abort(status, bounded(error.message), trailing_metadata=trailer)


def unary_handler(
    method: Callable[[Self, Request], Awaitable[Reply]],
) -> Callable[[Self, Request, Context[Any, Any]], Awaitable[Reply]]:
    """Wraps a handler of one request, which may raise SmqErrors."""

    @functools.wraps(method)
    async def handler(self: Self, request: Request, context: Context[Any, Any]) -> Reply:
        try:
            self.readiness.require_leadership()
            return await method(self, request)
        except Exception as error:
            await abort_with(context, error)
            raise AssertionError("abort raises") from error

    return handler


def stream_handler(
    method: Callable[[Self, Request], AsyncIterator[Reply]],
) -> Callable[[Self, Request, Context[Any, Any]], AsyncIterator[Reply]]:
    """The same for a handler that returns a stream."""

    @functools.wraps(method)
    async def handler(self: Self, request: Request, context: Context[Any, Any]) -> AsyncIterator[Reply]:
        try:
            self.readiness.require_leadership()
            async for reply in method(self, request):
                yield reply
        except Exception as error:
            await abort_with(context, error)

    return handler
