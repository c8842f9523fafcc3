"""Many malformed inputs to what serves Kafka clients, in this process: requests, record batches, whole connections."""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Callable, Mapping

import structlog

from smq_broker.kafka.protocol.api_versions import with_api_versions
from smq_broker.kafka.protocol.codec import decode_request
from smq_broker.kafka.protocol.messages import ProtocolError
from smq_storage.object_store.store import open_store
from support.fuzzing.kafka_listener import WORDS, AttackedListener
from support.fuzzing.kafka_records import stored_batches
from support.fuzzing.kafka_requests import RequestMaker
from support.fuzzing.mutator import Mutator
from support.fuzzing.targets import Outcome, Target, peak_bytes, run
from support.in_memory.kafka_apis import apis_of_one_topic

# A listener takes that many inputs. Then its log is checked, and another one begins with an empty store.
INPUTS_PER_LISTENER = 20_000


def attack(part: str, seed: int, inputs: int) -> tuple[list[Outcome], int]:
    """At least ``inputs`` inputs to one of ``PARTS``, and the bytes by which the memory of this process grew."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        PARTS[part](seed, 10)  # imports, and caches that are made once
        before = peak_bytes()
        outcomes = PARTS[part](seed, inputs)
        return outcomes, peak_bytes() - before
    finally:
        structlog.reset_defaults()


def _requests(seed: int, inputs: int) -> list[Outcome]:
    apis = with_api_versions(apis_of_one_topic(open_store("memory://")))
    maker = RequestMaker(apis, WORDS, [uuid.UUID(int=1)])

    def changed(mutator: Mutator) -> bytes:
        return mutator.data([maker.frame(mutator)[4:]])

    def take(frame: bytes) -> None:
        decode_request(memoryview(bytearray(frame)), apis)

    return [run(Target("requests of Kafka", changed, take, (ProtocolError,)), seed, inputs)]


def _records(seed: int, inputs: int) -> list[Outcome]:
    return [run(stored_batches(), seed, inputs)]


def _connections(seed: int, inputs: int) -> list[Outcome]:
    outcomes = []
    for number in range(math.ceil(inputs / INPUTS_PER_LISTENER)):
        listener = AttackedListener()
        share = math.ceil(min(INPUTS_PER_LISTENER, inputs) / len(listener.targets()))
        outcomes += [run(it, seed * 1000 + number, share) for it in listener.targets()]
        listener.check()
        listener.stop()
    return outcomes


PARTS: Mapping[str, Callable[[int, int], list[Outcome]]] = {
    "requests": _requests,
    "records": _records,
    "connections": _connections,
}
