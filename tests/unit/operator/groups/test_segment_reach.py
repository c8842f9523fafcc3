"""What the leader asks brokers about the ends of their segments."""

from __future__ import annotations

import asyncio
from typing import Any

from smq_core.model.entities import Replica
from smq_operator.groups.segment_reach import SegmentReach
from smq_proto.v1 import data_pb2 as pb
from support.virtual_time import virtual_time
from support.waiting import wait_until

REPLICA = Replica("b", "i-b", "b:1")


class SlowBroker:
    """Answers when it is let; each answer counts the questions that had been sent by then."""

    def __init__(self) -> None:
        self.sent = 0
        self.may_answer = asyncio.Event()

    async def call(self, *_: object, **__: object) -> bytes:
        self.sent += 1
        status = pb.BrokerStatus(broker=f"question {self.sent}")
        await self.may_answer.wait()
        return status.SerializeToString()


@virtual_time
async def test_a_question_is_not_answered_by_one_that_was_sent_before_it():
    """The answer may be as old as the question, and what a member was delivered since would be refused."""
    broker: Any = SlowBroker()
    reach = SegmentReach(broker, None)  # type: ignore[arg-type]
    first = asyncio.ensure_future(reach._status(REPLICA))
    await wait_until(lambda: broker.sent == 1)
    later = [asyncio.ensure_future(reach._status(REPLICA)) for _ in range(2)]
    await wait_until(lambda: broker.sent == 2)
    broker.may_answer.set()
    answers = [await it for it in (first, *later)]
    assert [it.broker for it in answers if it] == ["question 1", "question 2", "question 2"], (
        "those that wait share one"
    )
