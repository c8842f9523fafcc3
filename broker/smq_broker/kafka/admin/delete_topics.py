"""DeleteTopics. The deletion policy of a topic decides about its files."""

from __future__ import annotations

import asyncio
from typing import Any

from kio.schema.errors import ErrorCode

from smq_broker.kafka.admin.topic_changes import TopicChanges, check, outcome
from smq_broker.kafka.apis.error_codes import NO_THROTTLE, Refused
from smq_broker.kafka.protocol.messages import RequestContext, ResponseBody
from smq_broker.kafka.topics import KafkaTopic, KafkaTopics

TOPICS_FROM = 6


class DeleteTopicsApi:
    def __init__(self, topics: KafkaTopics, changes: TopicChanges) -> None:
        self._topics = topics
        self._changes = changes

    async def delete_topics(self, request: Any, context: RequestContext) -> ResponseBody:
        if context.version >= TOPICS_FROM:
            wanted = [(it.name, it.topic_id) for it in request.topics]
        else:
            wanted = [(name, None) for name in request.topic_names]
        wait_seconds = request.timeout.total_seconds()
        results = await asyncio.gather(*(self._result(context, name, id_, wait_seconds) for name, id_ in wanted))
        return {"throttle_time": NO_THROTTLE, "responses": results}

    async def _result(self, context: RequestContext, name: str | None, id_: Any, wait_seconds: float) -> dict[str, Any]:
        result = {"name": name, "topic_id": id_}
        try:
            found = await self._find(context, name, id_)
        except Refused as refused:
            return result | {"error_code": refused.code, "error_message": refused.message}
        code, message = await outcome(self._delete(context, found, wait_seconds))
        return {"name": found.name, "topic_id": found.id, "error_code": code, "error_message": message}

    async def _find(self, context: RequestContext, name: str | None, id_: Any) -> KafkaTopic:
        if (name is None) == (id_ is None):
            raise Refused(ErrorCode.invalid_request, "a topic to delete has either a name or an id")
        if name is not None:
            await check(context, name)
        found: KafkaTopic | None = await self._changes.read(
            lambda: self._topics.named(name) if name is not None else self._topics.identified(id_)
        )
        if found is None:
            missing = ErrorCode.unknown_topic_or_partition if name is not None else ErrorCode.unknown_topic_id
            raise Refused(missing, f"there is no topic {name or id_}")
        if name is None and await context.access.topic(found.name) is not ErrorCode.none:
            # It is not even said whether there is such a topic.
            raise Refused(ErrorCode.unknown_topic_id, f"there is no topic {id_}")
        return found

    async def _delete(self, context: RequestContext, found: KafkaTopic, wait_seconds: float) -> None:
        await self._changes.call(context, lambda admin: admin.delete(found.topic.name))
        self._topics.forget_list()
        await self._changes.wait_until(lambda: self._is_gone(found), wait_seconds)

    def _is_gone(self, found: KafkaTopic) -> bool:
        """Whether this broker does not find the topic any more, which it may have read some milliseconds ago."""
        now = self._topics.named(found.name)
        return now is None or now.id != found.id
