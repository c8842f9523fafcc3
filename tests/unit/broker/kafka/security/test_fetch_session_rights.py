"""A fetch session gives its client nothing to which it has no right any more: each request checks all its topics."""

from __future__ import annotations

import asyncio
import dataclasses

from kio.schema.errors import ErrorCode

from smq_broker.kafka.protocol.messages import RequestContext
from smq_broker.kafka.protocol.sessions import OpenRequestAccess
from unit.broker.kafka.test_fetch import Broker, request
from unit.broker.kafka.test_fetch_sessions import Client

DENIED = ErrorCode.topic_authorization_failed


class Changing(OpenRequestAccess):
    """A right that comes and goes."""

    code = ErrorCode.none

    async def topic(self, name: str) -> ErrorCode:
        return self.code


async def test_a_right_that_comes_and_goes_does_so_within_a_session() -> None:
    broker, access = Broker(), Changing()
    client = Client(broker, broker.fetch_api(asyncio.get_running_loop()), {0: 0, 1: 0})

    async def fetch() -> dict[int, tuple[int, bool]]:
        """The error of each partition in the next response, and whether there are records."""
        body = request(broker, offsets=client.offsets, wait_seconds=0, version=client.version)
        body = dataclasses.replace(body, session_id=client.id, session_epoch=client.epoch)
        if client.epoch:
            body = dataclasses.replace(body, topics=())
        context = RequestContext(None, client.version, client.connection, access)
        response = await client.api.fetch(body, context)
        assert response.error_code == 0
        client.id, client.epoch = response.session_id, client.epoch + 1
        return {it.partition: (it.error_code, bool(it.records)) for topic in response.topics for it in topic.partitions}

    assert await fetch() == {0: (0, False), 1: (0, False)}
    broker.append(1)
    access.code = DENIED
    assert await fetch() == {0: (DENIED.value, False), 1: (DENIED.value, False)}
    access.code = ErrorCode.none
    found = await fetch()
    assert found[1] == (0, True) and {code for code, _ in found.values()} == {0}
