"""Decodes the frame of a request, and encodes the frame of its response."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from smq_broker.kafka.protocol.cursor import Cursor
from smq_broker.kafka.protocol.entities import (
    build_response,
    encode,
    has_flexible_request_header,
    has_flexible_response_header,
    read,
    request_reader,
)
from smq_broker.kafka.protocol.messages import (
    API_VERSIONS,
    PRODUCE,
    ApiTable,
    KafkaRequest,
    Part,
    ProtocolError,
    ResponseBody,
)
from smq_broker.kafka.protocol.produce_request import decode_produce_request

# API key, version and correlation id begin each header, whatever the rest of it is.
HEADER_START = struct.Struct(">hhi")
_FRAME_START = struct.Struct(">ii")
_NO_TAGGED_FIELDS = b"\0"


def api_key_of(frame: memoryview) -> int:
    """Which API a frame is for. Raises ProtocolError if it has no header of a request."""
    if len(frame) < HEADER_START.size:
        raise ProtocolError("malformed", f"a frame of {len(frame)} bytes has no header of a request")
    return int(HEADER_START.unpack_from(frame)[0])


def decode_request(frame: memoryview, apis: ApiTable) -> KafkaRequest:
    """The request in a frame, which is without its length. Records of a Produce request are views of the frame.

    Raises ProtocolError if it cannot be decoded, or if ``apis`` does not have its key or version. An ApiVersions
    request of another version is decoded as one of version 0 with no body.
    """
    api_key_of(frame)
    api_key, version, correlation_id = HEADER_START.unpack_from(frame)
    api = apis.get(api_key)
    if api is None:
        raise ProtocolError("unknown_api", f"API {api_key} is not supported")
    if not api.min_version <= version <= api.max_version:
        if api_key == API_VERSIONS:
            return KafkaRequest(api_key=api_key, version=0, correlation_id=correlation_id, client_id=None, body=None)
        raise ProtocolError(
            "unsupported_version",
            f"API {api_key} has the versions {api.min_version} to {api.max_version} here, not {version}",
        )
    header = Cursor(frame, HEADER_START.size, has_flexible_request_header(api_key, version))
    client_id = header.legacy_string()
    header.end_structure()
    if api_key == PRODUCE:
        body = decode_produce_request(frame, header.position, version)
    else:
        body = read(request_reader(api_key, version), frame.toreadonly(), header.position)
    return KafkaRequest(
        api_key=api_key,
        version=version,
        correlation_id=correlation_id,
        client_id=client_id,
        body=body,
    )


def encode_response(request: KafkaRequest, body: ResponseBody) -> Sequence[Part]:
    """The frame of a response, with its length. Large parts of the body are part of it as they are."""
    if isinstance(body, Mapping):
        body = build_response(request.api_key, request.version, body)
    parts: Sequence[Part] = body.encode(request.version) if hasattr(body, "encode") else (encode(body),)
    flexible = has_flexible_response_header(request.api_key, request.version)
    header_rest = _NO_TAGGED_FIELDS if flexible else b""
    size = 4 + len(header_rest) + sum(map(len, parts))
    return (_FRAME_START.pack(size, request.correlation_id) + header_rest, *parts)
