"""Whether a client may write to the topics of a request, or read them, and how long it waits for its quota.

A response tells a client above its quota how long it had better wait before the next request, as Kafka does. A client
that does not wait by itself waits here.
"""

from __future__ import annotations

import asyncio

from kio.schema.errors import ErrorCode

from smq_broker.access.callers import StreamQuota
from smq_broker.kafka.apis.error_codes import error_code_of
from smq_broker.kafka.protocol.sessions import RequestAccess
from smq_core.errors import QuotaExceeded

# The longest that a client is told to wait at once. It is told again with the next response.
MAX_THROTTLE_SECONDS = 30.0


class Admission:
    """Of one request. ``waited_seconds`` is how long it has waited for quotas."""

    def __init__(self, access: RequestAccess) -> None:
        self._access = access
        self._streams: dict[str, StreamQuota] = {}
        self.waited_seconds = 0.0

    async def admit(self, topic: str | None) -> ErrorCode:
        """``none`` once the client may go on with this topic. None stands for an id that nobody has."""
        if topic is None:
            return ErrorCode.none
        denied = await self._access.topic(topic)
        if denied is not ErrorCode.none:
            return denied
        try:
            stream = self._streams[topic] = self._access.stream(topic)
        except QuotaExceeded as error:
            return error_code_of(error)
        while (left := stream.pause_seconds()) > 0:
            await asyncio.sleep(left)
            self.waited_seconds += left
        return ErrorCode.none

    def is_limited(self, topic: str | None) -> bool:
        """Whether it has to be counted what the request uses of the topic."""
        stream = self._streams.get(topic or "")
        return stream is not None and stream.is_limited

    def use(self, topic: str, nbytes: int, messages: int) -> None:
        """The request has written that much to the topic, or read it."""
        self._streams[topic].use(nbytes, messages)

    def throttle_ms(self) -> int:
        """How long the client had better wait."""
        left = max((it.pause_seconds() for it in self._streams.values()), default=0.0)
        return int(min(left, MAX_THROTTLE_SECONDS) * 1000)
