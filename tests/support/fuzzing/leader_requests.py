"""What callers send to a leader, given to its handlers in this process, in virtual time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import structlog
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from smq_proto.v1 import admin_pb2
from smq_proto.wire import PROTOCOL
from smq_storage.object_store.store import open_store
from support.fuzzing.mutator import Mutator
from support.fuzzing.targets import Outcome
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, RpcAborted, running_leader
from support.leader_access import methods
from support.leader_services import handler_of
from support.processes.leader import manifest
from support.virtual_time import run_in_virtual_time
from support.waiting import wait_until

TOPIC = "default/t"
# With one leader, at once. A request may delete the topic, and others wait for what never comes.
PER_LEADER, AT_ONCE = 200, 40
LONGEST_SECONDS = 15.0
_NESTED = '{"retention":' * 400 + "1" + "}" * 400
_WORDS = (TOPIC, "t", "default/u", "b0", "b1", "b2", "g", "team.a", "p", _NESTED, '{"retention": {"age": "3d"}}')


def run_leader(seed: int, inputs: int) -> list[Outcome]:
    """An outcome for each call."""
    outcomes = {call: Outcome(f"call {call}") for call in sorted(methods())}
    for part in range(-(-inputs // PER_LEADER)):
        mutator = Mutator(seed * 1_000_003 + part)
        run_in_virtual_time(_attack(mutator, min(PER_LEADER, inputs - part * PER_LEADER), outcomes))
    return list(outcomes.values())


async def _attack(mutator: Mutator, inputs: int, outcomes: dict[str, Outcome]) -> None:
    store = open_store("memory://")
    fleet, platform = FakeFleet(store), FakePlatform()
    for number in range(3):
        fleet.add(f"b{number}")
    platform.add_topic(TOPIC, min_segments=2)
    leader = LeaderInMemory(platform, fleet, store)
    mistakes: list[str] = []

    def note(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        if event.get("exc_info"):
            mistakes.append(repr(event)[:600])
        raise structlog.DropEvent

    structlog.configure(processors=[note])
    try:
        async with running_leader(leader, report_seconds=0.5):
            await wait_until(lambda: leader.topics.get(TOPIC) is not None and leader.topics[TOPIC].layout is not None)
            layout = leader.topics[TOPIC].layout
            assert layout is not None
            segments = [segment.name for segment in layout.segments]
            incarnations = [broker.replica.incarnation for broker in fleet.brokers.values()]
            mutator.words = (*_WORDS, *segments, *incarnations, layout.uid, manifest("u"))
            requests = [_request(mutator) for _ in range(inputs)]
            for first in range(0, inputs, AT_ONCE):
                await asyncio.gather(*(_send(leader, *it, outcomes) for it in requests[first : first + AT_ONCE]))
            rounds = leader.loop.reconciliations
            leader.queue.enqueue()
            await wait_until(lambda: leader.loop.reconciliations > rounds, what="the leader goes on")
    finally:
        structlog.reset_defaults()
    if mistakes:
        outcomes["Admin.ListTopics"].failures.extend(f"logged: {it}" for it in mistakes[:3])


def _request(mutator: Mutator) -> tuple[str, Message]:
    call = mutator.random.choice(_CALLS)
    if call == "Admin.DeleteTopic" and mutator.random.random() < 0.9:  # without a topic others get to little
        call = "Admin.TrimTopic"
    request = mutator.message(GetMessageClass(methods()[call].input_type))
    fields = request.DESCRIPTOR.fields_by_name
    if "topic" in fields and mutator.random.random() < 0.7:
        request.topic = TOPIC  # type: ignore[attr-defined]
    if "protocol" in fields:
        request.protocol = PROTOCOL  # type: ignore[attr-defined]
    if isinstance(request, admin_pb2.ApplyTopicRequest) and mutator.random.random() < 0.5:
        request.manifest = mutator.text([manifest("u"), manifest("t")])
    return call, request


async def _send(leader: LeaderInMemory, call: str, request: Message, outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes[call]
    outcome.inputs += 1
    began = time.process_time()
    try:
        async with asyncio.timeout(LONGEST_SECONDS):
            await _answer(leader, call, request)
        outcome.accepted += 1
    except (RpcAborted, TimeoutError) as error:
        if str(error).startswith("unexpected error in the leader"):
            outcome.failures.append(f"{error} for {request!r:.400}")
    except Exception as error:
        outcome.failures.append(f"{type(error).__name__}: {error!s:.200} for {request!r:.400}")
    outcome.slowest_seconds = max(outcome.slowest_seconds, time.process_time() - began)


async def _answer(leader: LeaderInMemory, call: str, request: Message) -> Any:
    method = call.partition(".")[2]
    if not methods()[call].server_streaming:
        return await leader.call(method, request)
    replies = handler_of(leader.parts.services, method)(request, _Context())
    async for reply in replies:
        await replies.aclose()
        return reply


class _Context:
    async def abort(self, status: object, message: str, trailing_metadata: object = ()) -> None:
        raise RpcAborted(message)


_CALLS: Sequence[str] = sorted(methods())
