"""Refuses requests of clients that are too large, before they are decoded, which would take several times their size.

gRPC has one limit for all calls of a server. It fits the largest of them, a broker's report.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc

from smq_core.errors import MessageTooLarge
from smq_operator.api.rpc_errors import Context, abort_with

# 1 MiB: the positions of 6,000 segments with the longest names, and five times an atomic publish of the most files.
MAX_REQUEST_BYTES = 1 << 20
# A report of the most segments has 5 MB.
MAX_REPORT_BYTES = 8 << 20
REPORT = "/smq.v1.Brokers/Report"

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


@dataclass(frozen=True, slots=True)
class _TooLarge:
    """In place of a request, because nothing may be raised while gRPC decodes one."""

    size: int

    def error(self) -> MessageTooLarge:
        return MessageTooLarge(
            f"a request has {self.size:,} bytes, at most {MAX_REQUEST_BYTES:,} are accepted: send several smaller ones",
            size=self.size,
            limit=MAX_REQUEST_BYTES,
        )


class RequestSizes(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc.aio has no types for it
    """For all services of the leader. It comes before all other checks, which would look at the request."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        handler = await continuation(details)
        if handler is None or details.method == REPORT:
            return handler
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(
                _unary(handler.unary_unary), _decode(handler.request_deserializer), handler.response_serializer
            )
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(
                _stream(handler.unary_stream), _decode(handler.request_deserializer), handler.response_serializer
            )
        return handler  # of a call that was refused, which receives no request


def _decode(decode: Callable[[bytes], Any] | None) -> Callable[[bytes], Any]:
    assert decode is not None, "each generated service has one"
    return lambda request: decode(request) if len(request) <= MAX_REQUEST_BYTES else _TooLarge(len(request))


def _unary(handler: Any) -> Any:
    async def checked(request: Any, context: Context[Any, Any]) -> Any:
        if isinstance(request, _TooLarge):
            await abort_with(context, request.error())
        return await handler(request, context)

    return checked


def _stream(handler: Any) -> Any:
    async def checked(request: Any, context: Context[Any, Any]) -> AsyncIterator[Any]:
        if isinstance(request, _TooLarge):
            await abort_with(context, request.error())
        async for reply in handler(request, context):
            yield reply

    return checked
