"""Requests of Kafka's APIs with any values that their fields can have, in each version that a broker serves."""

from __future__ import annotations

import dataclasses
import struct
import types
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cache
from typing import Any, get_args, get_origin

from kio.index import load_request_schema

from smq_broker.kafka.protocol.entities import encode
from smq_broker.kafka.protocol.messages import FETCH, PRODUCE, ApiTable
from support.fuzzing.kafka_batches import batch
from support.fuzzing.mutator import NAMES, Mutator

_HALF_MINUTE_MS = 30_000
_MS = (0, 0, 1, 5, 6_000, _HALF_MINUTE_MS, -1, (1 << 31) - 1, -(1 << 31))
_PARTITIONS = (0, 0, 1, 2, 3, -1, 4, (1 << 31) - 1, -(1 << 31))
_NUMBERS = (0, 0, 1, 1, 2, -1, -2, -3, -5, 100, 1 << 20)
# The times and numbers of fields that decide whether a request gets any further.
_CHOSEN: Mapping[str, Sequence[Any]] = {
    "acks": (-1, -1, -1, 1, 0, 2),
    "max_wait": (0, 0, 1, 5),
    "timeout": (1000, 1000, 1, 0, -1),
    "session_timeout": (6_000, _HALF_MINUTE_MS, 1, -1),
    "replica_id": (-1,),
    "transactional_id": (None, None, None, None, "t"),
    "partition_max_bytes": (1 << 20, 1 << 20, 1, 0, -1),
    "protocol_type": ("consumer", "consumer", "connect", ""),
    "group_instance_id": (None, None, "i1", "i2"),
    "validate_only": (True,),
}
_PARTITION_FIELDS = {"partition", "partition_index", "partition_indexes", "partitions", "index"}
_GROUP_FIELDS = {"group_id", "groups", "groups_names", "coordinator_keys", "key"}
GROUPS = ("g1", "g2", "g" * 249, "g" * 250)
_SUBSCRIPTION = struct.pack(">hih6si", 1, 1, 6, b"events", -1)


class RequestMaker:
    """``words`` are names that the broker knows. ``learnt`` are values of its answers, by the name of their field."""

    def __init__(self, apis: ApiTable, words: Sequence[str], topic_ids: Sequence[uuid.UUID]) -> None:
        versions = [(key, version) for key, api in sorted(apis.items()) for version in range(api[0], api[1] + 1)]
        # Those that carry messages come more often.
        self._versions = versions + 6 * [it for it in versions if it[0] in (PRODUCE, FETCH)]
        self.learnt: dict[str, deque[Any]] = {}
        self._words = words
        self._topic_ids = topic_ids
        self._number = 0

    def learn(self, entity: Any) -> None:
        """Later requests have ids, sessions and generations from this answer."""
        for name in ("member_id", "session_id", "generation_id", "leader", "producer_id", "producer_epoch"):
            if (value := getattr(entity, name, None)) not in (None, "", 0, -1):
                self.learnt.setdefault(name, deque(maxlen=8)).append(value)

    def frame(self, mutator: Mutator) -> bytes:
        """One request with its length. The correlation id is the number of the request."""
        self._number += 1
        key, version = mutator.random.choice(self._versions)
        schema = load_request_schema(key, version)
        header = {
            "request_api_key": key,
            "request_api_version": version,
            "correlation_id": self._number,
            "client_id": "client",
        }
        header_schema = schema.__header_schema__
        known = {it.name for it in dataclasses.fields(header_schema)}
        head = encode(header_schema(**{name: value for name, value in header.items() if name in known}))
        body = encode(self._entity(schema, mutator))
        return struct.pack(">i", len(head) + len(body)) + head + body

    def _entity(self, schema: type[Any], mutator: Mutator) -> Any:
        fields = _fields_of(schema)
        return schema(**{name: self._value(name, type_, kind, mutator) for name, (type_, kind) in fields.items()})

    def _value(self, name: str, type_: Any, kind: str | None, mutator: Mutator) -> Any:
        rng = mutator.random
        options = get_args(type_) if isinstance(type_, types.UnionType) else (type_,)
        if name in _CHOSEN:
            chosen = rng.choice(_CHOSEN[name])
            if isinstance(chosen, str) or chosen is None:
                return chosen if chosen is not None or type(None) in options else ""
            return timedelta(milliseconds=chosen) if kind is not None and kind.startswith("timedelta") else chosen
        if type(None) in options and rng.random() < 0.15:
            return None
        (only,) = (it for it in options if it is not type(None))
        if get_origin(only) is tuple:
            element = get_args(only)[0]
            size = rng.choice((0, 1, 1, 1, 2, 3))
            return tuple(self._value(name, element, kind, mutator) for _ in range(size))
        if kind is None:
            return self._entity(only, mutator)
        return _MAKERS[kind](self, name, mutator)

    def _string(self, name: str, mutator: Mutator) -> str:
        rng = mutator.random
        if name in self.learnt and rng.random() < 0.8:
            return str(rng.choice(self.learnt[name]))
        if name in _GROUP_FIELDS and rng.random() < 0.9:
            return rng.choice(GROUPS)
        if name in ("member_id", "client_software_name"):
            return rng.choice(("", "m", "librdkafka"))
        return rng.choice(self._words) if rng.random() < 0.8 else rng.choice(NAMES)

    def _int(self, bits: int, name: str, mutator: Mutator) -> int:
        rng = mutator.random
        if name in self.learnt and rng.random() < 0.7:
            return int(rng.choice(self.learnt[name]))
        if name in _PARTITION_FIELDS:
            return rng.choice(_PARTITIONS)
        most = (1 << bits - 1) - 1
        number = rng.choice(_NUMBERS) if rng.random() < 0.9 else rng.choice((most, -most - 1))
        return max(-most - 1, min(number, most))

    def _bytes(self, _: str, mutator: Mutator) -> bytes:
        rng = mutator.random
        return _SUBSCRIPTION if rng.random() < 0.7 else mutator.data([_SUBSCRIPTION, b""])

    def _uuid(self, _: str, mutator: Mutator) -> uuid.UUID | None:
        return mutator.random.choice((*self._topic_ids, *self._topic_ids, uuid.UUID(int=7), None))


def _milliseconds(_: RequestMaker, __: str, mutator: Mutator) -> timedelta:
    return timedelta(milliseconds=mutator.random.choice(_MS))


_MAKERS: Mapping[str, Callable[[RequestMaker, str, Mutator], Any]] = {
    "string": RequestMaker._string,
    "bytes": RequestMaker._bytes,
    "uuid": RequestMaker._uuid,
    "records": lambda _, __, mutator: batch(mutator),
    "bool": lambda _, __, mutator: mutator.random.random() < 0.5,
    "timedelta_i32": _milliseconds,
    "timedelta_i64": _milliseconds,
    **{
        f"int{bits}": lambda maker, name, mutator, bits=bits: maker._int(bits, name, mutator)  # type: ignore[misc]
        for bits in (8, 16, 32, 64)
    },
}


@cache
def _fields_of(schema: type[Any]) -> Mapping[str, tuple[Any, str | None]]:
    return {it.name: (it.type, it.metadata.get("kafka_type")) for it in dataclasses.fields(schema)}
