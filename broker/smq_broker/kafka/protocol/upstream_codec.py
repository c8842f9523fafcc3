"""Encodes requests and decodes responses, as a client of another listener does."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from kio.index import load_response_schema
from kio.serial import entity_reader

from smq_broker.kafka.protocol.codec import HEADER_START
from smq_broker.kafka.protocol.cursor import INT16, INT32, Cursor, unsigned_varint
from smq_broker.kafka.protocol.entities import has_flexible_request_header, has_flexible_response_header, read
from smq_broker.kafka.protocol.fetch_response import (
    FLEXIBLE_FROM,
    LOG_START_FROM,
    PREFERRED_REPLICA_FROM,
    SESSIONS_FROM,
    TOPIC_IDS_FROM,
    FetchedPartition,
    FetchedTopic,
    FetchResponse,
)
from smq_broker.kafka.protocol.messages import Part
from smq_broker.kafka.protocol.produce_request import FLEXIBLE_FROM as FLEXIBLE_PRODUCE_FROM
from smq_broker.kafka.protocol.produce_request import TOPIC_IDS_FROM as PRODUCED_IDS_FROM
from smq_broker.kafka.protocol.produce_request import ProduceRequest

_NO_ID = b"\0" * 16
_OLD_STATE = struct.Struct(">ihqq")
_STATE = struct.Struct(">ihqqq")
_ABORTED_BYTES = 16
_PRODUCE_START = struct.Struct(">hi")


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, body: Sequence[Part]
) -> list[Part]:
    """The frame of a request, with its length. Parts of the body are parts of it as they are."""
    header = bytearray(HEADER_START.pack(api_key, version, correlation_id)) + _legacy_string(client_id)
    if has_flexible_request_header(api_key, version):
        header += b"\0"
    return [INT32.pack(len(header) + sum(map(len, body))) + header, *body]


def response_body(frame: memoryview, api_key: int, version: int) -> memoryview:
    """What follows the header of a response, which is without its length. Raises ProtocolError."""
    cursor = Cursor(frame, INT32.size, has_flexible_response_header(api_key, version))
    cursor.end_structure()
    return frame[cursor.position :]


def decode_response(body: memoryview, api_key: int, version: int) -> Any:
    """kio's entity of a response. Raises ProtocolError."""
    return read(entity_reader(load_response_schema(api_key, version)), body.toreadonly(), 0)


def encode_produce_request(request: ProduceRequest, version: int) -> list[Part]:
    """The body, with the records as they are. kio would copy them."""
    flexible = version >= FLEXIBLE_PRODUCE_FROM
    end = b"\0" if flexible else b""
    parts: list[Part] = []

    def size(count: int) -> bytes:
        return unsigned_varint(count + 1) if flexible else INT32.pack(count)

    def string(text: str | None) -> bytes:
        if not flexible:
            return _legacy_string(text)
        return b"\0" if text is None else unsigned_varint(len(text.encode()) + 1) + text.encode()

    small = bytearray(string(request.transactional_id) + _PRODUCE_START.pack(request.acks, request.timeout_ms))
    small += size(len(request.topics))
    for topic in request.topics:
        if version >= PRODUCED_IDS_FROM:
            small += topic.topic_id.bytes if topic.topic_id is not None else _NO_ID
        else:
            small += string(topic.name)
        small += size(len(topic.partitions))
        for number, records in topic.partitions:
            small += INT32.pack(number) + size(-1 if records is None else len(records))
            if records is not None:
                parts += (small, records)
                small = bytearray()
            small += end
        small += end
    return [*parts, small + end]


def decode_fetch_response(body: memoryview, version: int) -> FetchResponse:
    """Its records are views of the body. Raises ProtocolError."""
    cursor = Cursor(body, 0, flexible=version >= FLEXIBLE_FROM)
    throttle_ms = cursor.int32()
    has_session = version >= SESSIONS_FROM
    error_code, session_id = (cursor.int16(), cursor.int32()) if has_session else (0, 0)
    topics = [_topic(cursor, version) for _ in range(cursor.array_size())]
    return FetchResponse(topics=topics, throttle_ms=throttle_ms, error_code=error_code, session_id=session_id)


def _topic(cursor: Cursor, version: int) -> FetchedTopic:
    has_id = version >= TOPIC_IDS_FROM
    name, id_ = ("", cursor.take(16)) if has_id else (cursor.string() or "", memoryview(_NO_ID))
    partitions = [_partition(cursor, version) for _ in range(cursor.array_size())]
    cursor.end_structure()
    return FetchedTopic(name, UUID(bytes=bytes(id_)), partitions)


def _partition(cursor: Cursor, version: int) -> FetchedPartition:
    state = _STATE if version >= LOG_START_FROM else _OLD_STATE
    number, error_code, high_watermark, last_stable, *log_start = state.unpack(cursor.take(state.size))
    for _ in range(cursor.array_size()):
        cursor.take(_ABORTED_BYTES)
        cursor.end_structure()
    if version >= PREFERRED_REPLICA_FROM:
        cursor.take(INT32.size)
    records = cursor.view()
    cursor.end_structure()
    return FetchedPartition(
        partition=number,
        error_code=error_code,
        high_watermark=high_watermark,
        last_stable_offset=last_stable,
        log_start_offset=log_start[0] if log_start else -1,
        records=(records,) if records else (),
    )


def _legacy_string(text: str | None) -> bytes:
    if text is None:
        return INT16.pack(-1)
    encoded = text.encode()
    return INT16.pack(len(encoded)) + encoded
