"""What the APIs that create, change and delete topics have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from kio.schema.errors import ErrorCode

from smq_broker.kafka.apis.error_codes import Refused
from smq_broker.kafka.executor import Blocking
from smq_broker.kafka.protocol.messages import RequestContext
from smq_broker.leader_client.topic_admin import TopicAdmin
from smq_core.errors import (
    Conflict,
    InvalidRequest,
    PermissionDenied,
    SmqError,
    SpecRejected,
    Unauthenticated,
    UnknownTopic,
)
from smq_core.kafka_topics.configs import InvalidConfig

# How often the layout of a topic is read that was created, or deleted, just now.
CHECK_SECONDS = 0.05
# The longest that a request waits for that, whatever its client says.
MAX_WAIT_SECONDS = 10.0

_CODES: tuple[tuple[type[SmqError], ErrorCode], ...] = (
    (PermissionDenied, ErrorCode.topic_authorization_failed),
    (Unauthenticated, ErrorCode.topic_authorization_failed),
    (UnknownTopic, ErrorCode.unknown_topic_or_partition),
    (SpecRejected, ErrorCode.policy_violation),
    (InvalidRequest, ErrorCode.invalid_request),
    (Conflict, ErrorCode.topic_already_exists),
)


class TopicChanges:
    """Calls the leader in separate threads, because it may answer after seconds.

    ``admin`` is None in a release that also lets in clients which nobody knows.
    """

    def __init__(self, admin: TopicAdmin | None) -> None:
        self._admin = admin
        self._blocking = Blocking()

    async def call(self, context: RequestContext, change: Callable[[TopicAdmin], None]) -> None:
        """With the rights of the client. Raises Refused."""
        admin, session = self._admin, context.connection.session
        if admin is None:
            raise Refused(
                ErrorCode.cluster_authorization_failed,
                "Kafka clients change topics here once everybody has to log in: use `smq topic` or `kubectl apply`",
            )
        if session is not None:
            admin = admin.of_caller(session.token)
        try:
            await self._blocking.call(lambda: change(admin))
        except SmqError as error:
            raise _refused(error) from None

    async def read(self, find: Callable[[], Any]) -> Any:
        """What ``find`` returns, which reads the filer. Raises Refused."""
        try:
            return await self._blocking.call(find)
        except SmqError as error:
            raise _refused(error) from None

    async def wait_until(self, holds: Callable[[], bool], seconds: float) -> None:
        """Returns when ``holds``, which reads the filer, is true; after some seconds in any case."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(seconds, MAX_WAIT_SECONDS)
        while not await self.read(holds) and loop.time() < deadline:
            await asyncio.sleep(CHECK_SECONDS)


def _refused(error: SmqError) -> Refused:
    code = next((code for kind, code in _CODES if isinstance(error, kind)), ErrorCode.request_timed_out)
    return Refused(code, error.message)


async def outcome(work: Any) -> tuple[ErrorCode, str | None]:
    """The code and the message of what is awaited."""
    try:
        await work
    except Refused as refused:
        return refused.code, refused.message
    except InvalidConfig as error:
        return ErrorCode.invalid_config, str(error)
    return ErrorCode.none, None


async def check(context: RequestContext, name: str) -> None:
    """Raises Refused if the client may not do this with the topic that it names so."""
    code = await context.access.topic(name)
    if code is not ErrorCode.none:
        raise Refused(code)
