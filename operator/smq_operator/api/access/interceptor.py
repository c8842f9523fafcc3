"""Checks each call before its handler runs: who makes it, and whether it may.

A caller that nobody knows is refused before its request is received, and so is one that reports and is no broker. A
stream is checked again while it runs, because a token or a right may be gone by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import Message

from smq_core.access.leader_calls import LEADER_CALLS, CallSubject
from smq_core.errors import PermissionDenied, Unauthenticated
from smq_operator.api.access.call_subjects import subject_of
from smq_operator.api.access.visible_topics import visible_topics
from smq_operator.api.rpc_errors import Context, abort_with
from smq_operator.reconcile.topics.directory import TopicDirectory
from smq_operator.security.access.access_control import AccessControl, has_token
from smq_operator.security.access.anonymous_access import ANONYMOUS
from smq_operator.security.callers import Caller, current_peer, set_current_call
from smq_proto.v1 import admin_pb2

# The longest that a stream goes on after its caller has lost the right to it.
STREAM_CHECK_SECONDS = 20.0

Replies: TypeAlias = AsyncGenerator[Any, None]
Metadata = Sequence[tuple[str, str | bytes]]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class AccessInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc.aio has no types for it
    """For all services of the leader. ``topics`` returns the directory, which may not be there yet at first.

    ``client_of`` returns where a call comes from, by what gRPC says of that.
    """

    def __init__(
        self, access: AccessControl, topics: Callable[[], TopicDirectory], client_of: Callable[[str], str] = str
    ) -> None:
        self._access = access
        self._topics = topics
        self._client_of = client_of

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        handler = await continuation(details)
        if handler is None:
            return None
        call = details.method.rpartition(".")[2].replace("/", ".")  # of "/smq.v1.Topics/Locate"
        metadata: Metadata = details.invocation_metadata
        try:
            caller = await self._access.authenticate(metadata, call)
        except Exception as error:
            return self._refuse(error, call, metadata)
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(
                self._unary(call, caller, handler.unary_unary),
                handler.request_deserializer,
                handler.response_serializer,
            )
        assert handler.unary_stream is not None, f"{call} takes a stream of requests, which nobody checks"
        return grpc.unary_stream_rpc_method_handler(
            self._stream(call, caller, metadata, handler.unary_stream),
            handler.request_deserializer,
            handler.response_serializer,
        )

    def _refuse(self, error: Exception, call: str, metadata: Metadata) -> Handler:
        """Ends the call without its request: only a handler of streams can do that."""

        async def refuse(_: object, context: Context[Any, Any]) -> None:
            self._begin(None, context)
            if isinstance(error, Unauthenticated | PermissionDenied):
                self._access.record_refused(error, call, has_token(metadata))
            await abort_with(context, error)

        return grpc.stream_stream_rpc_method_handler(refuse)

    def _unary(self, call: str, caller: Caller, handler: Any) -> Any:
        async def checked(request: Message, context: Context[Any, Any]) -> Any:
            self._begin(caller, context)
            subject, outcome = CallSubject(), "CANCELLED"
            try:
                subject, sees_all = await self._authorize(call, caller, request)
                try:
                    reply = await handler(request, context)
                    outcome = "OK"
                except grpc.aio.AbortError:
                    outcome = _status_name(context.code())
                    raise
                finally:
                    if LEADER_CALLS[call].is_audited:
                        self._record(call, caller, subject, outcome)
                if not sees_all:
                    assert isinstance(reply, admin_pb2.TopicList)
                    reply = await visible_topics(reply, sorted(self._topics()), caller, self._access)
                return reply
            except grpc.aio.AbortError:
                raise
            except Exception as error:
                await abort_with(context, error)

        return checked

    def _stream(self, call: str, caller: Caller, metadata: Metadata, handler: Any) -> Any:
        async def checked(request: Message, context: Context[Any, Any]) -> AsyncIterator[Any]:
            self._begin(caller, context)
            try:
                await self._authorize(call, caller, request)
                checked_replies = _with_checks(
                    handler(request, context), lambda: self._check_again(call, metadata, request)
                )
                async with aclosing(checked_replies):
                    async for reply in checked_replies:
                        yield reply
            except grpc.aio.AbortError:
                raise
            except Exception as error:
                await abort_with(context, error)

        return checked

    async def _check_again(self, call: str, metadata: Metadata, request: Message) -> None:
        try:
            caller = await self._access.authenticate(metadata, call)
        except Unauthenticated as error:
            self._access.record_refused(error, call, True)
            raise
        await self._authorize(call, caller, request)

    async def _authorize(self, call: str, caller: Caller, request: Message) -> tuple[CallSubject, bool]:
        """What the call is about, and whether the caller sees all of the reply. Raises PermissionDenied."""
        subject = await subject_of(request, self._topics())
        return subject, await self._access.authorize(caller, call, subject)

    def _record(self, call: str, caller: Caller, subject: CallSubject, outcome: str) -> None:
        about = subject.topic or subject.incarnation
        self._access.audit.record_call(
            call, identity=caller.identity, about=about, peer=current_peer(), outcome=outcome
        )

    def _begin(self, caller: Caller | None, context: Context[Any, Any]) -> None:
        """Who makes this call, and from where. Handlers see nobody behind a call in clear text without a token."""
        set_current_call(caller if caller is not ANONYMOUS else None, self._client_of(context.peer()))


async def _with_checks(
    replies: AsyncGenerator[Any, None], check: Callable[[], Awaitable[None]]
) -> AsyncGenerator[Any, None]:
    """The same replies; every ``STREAM_CHECK_SECONDS`` it awaits ``check``, whose error ends the stream."""
    loop = asyncio.get_running_loop()
    due, following = loop.time() + STREAM_CHECK_SECONDS, None
    try:
        while True:
            following = following or asyncio.ensure_future(anext(replies, _END))
            await asyncio.wait([following], timeout=max(0.0, due - loop.time()))
            if loop.time() >= due:
                await check()
                due = loop.time() + STREAM_CHECK_SECONDS
            if following.done():
                reply, following = following.result(), None
                if reply is _END:
                    return
                yield reply
    finally:
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        await replies.aclose()


_END = object()
_STATUS_NAMES = {status.value[0]: status.name for status in grpc.StatusCode}


def _status_name(code: Any) -> str:
    """Of a status, which gRPC's contexts have as a number."""
    return _STATUS_NAMES.get(code) or str(getattr(code, "name", code))
