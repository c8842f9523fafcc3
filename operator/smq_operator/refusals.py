"""SmqErrors as gRPC refusals: a status, words, and the whole error in the trailer ``smq-error-bin``."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import grpc
import structlog

from smq_core import errors
from smq_proto.wire import error_to_pb

if TYPE_CHECKING:
    from smq_operator.desk import Desk

TRAILER = "smq-error-bin"

log = structlog.get_logger()

_STATUS: list[tuple[type[errors.SmqError], grpc.StatusCode]] = [
    (errors.UnknownTopic, grpc.StatusCode.NOT_FOUND),
    (errors.UnknownSegment, grpc.StatusCode.NOT_FOUND),
    (errors.InvalidRequest, grpc.StatusCode.INVALID_ARGUMENT),
    (errors.NotLeader, grpc.StatusCode.FAILED_PRECONDITION),
    (errors.Unavailable, grpc.StatusCode.UNAVAILABLE),
    (errors.Conflict, grpc.StatusCode.ABORTED),
    (errors.SmqError, grpc.StatusCode.FAILED_PRECONDITION),
]


class HasDesk(Protocol):
    desk: Desk


Self = TypeVar("Self", bound=HasDesk)
Request = TypeVar("Request")
Reply = TypeVar("Reply")
Context = grpc.aio.ServicerContext


def status_of(error: errors.SmqError) -> grpc.StatusCode:
    return next(status for kind, status in _STATUS if isinstance(error, kind))


async def refuse(context: Context[Any, Any], error: Exception) -> None:
    """Ends the call with this error; one that is no SmqError is a bug, and logged as such."""
    if isinstance(error, errors.SmqError):
        status = status_of(error)
    else:
        log.error("request.failed", exc_info=error)
        error = errors.SmqError(f"unexpected error in the leader ({type(error).__name__}): see its log")
        status = grpc.StatusCode.INTERNAL
    trailer = ((TRAILER, error_to_pb(error).SerializeToString()),)
    await context.abort(status, error.message, trailing_metadata=trailer)


def answers(
    method: Callable[[Self, Request], Awaitable[Reply]],
) -> Callable[[Self, Request, Context[Any, Any]], Awaitable[Reply]]:
    """A handler of one request that may raise SmqErrors."""

    @functools.wraps(method)
    async def handler(self: Self, request: Request, context: Context[Any, Any]) -> Reply:
        try:
            self.desk.must_lead()
            return await method(self, request)
        except Exception as error:
            await refuse(context, error)
            raise AssertionError("abort raises") from error

    return handler


def streams(
    method: Callable[[Self, Request], AsyncIterator[Reply]],
) -> Callable[[Self, Request, Context[Any, Any]], AsyncIterator[Reply]]:
    """The same for a handler that answers a stream."""

    @functools.wraps(method)
    async def handler(self: Self, request: Request, context: Context[Any, Any]) -> AsyncIterator[Reply]:
        try:
            self.desk.must_lead()
            async for reply in method(self, request):
                yield reply
        except Exception as error:
            await refuse(context, error)

    return handler
