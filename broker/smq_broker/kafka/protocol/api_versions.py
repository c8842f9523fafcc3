"""Answers ApiVersions, with which each client begins, from the table of APIs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from functools import cached_property
from typing import Any

from kio.schema.errors import ErrorCode

from smq_broker.kafka.protocol.entities import build_response, encode
from smq_broker.kafka.protocol.messages import (
    API_VERSIONS,
    PRODUCE,
    Api,
    ApiTable,
    EncodedBody,
    RequestContext,
)

MAX_VERSION = 4
# Old versions of librdkafka compress nothing unless a broker has Produce from version 0. Kafka 4 does the same.
ADVERTISED_FROM = {PRODUCE: 0}
# What Kafka accepts as the name or version of a client's library.
SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
MAX_SOFTWARE_CHARACTERS = 100


def with_api_versions(apis: ApiTable) -> ApiTable:
    """The table with the API that lists it."""
    answers = _ApiVersions(apis)
    return {**apis, API_VERSIONS: Api(0, MAX_VERSION, answers.handle)}


class _ApiVersions:
    def __init__(self, apis: ApiTable) -> None:
        ranges = {key: (ADVERTISED_FROM.get(key, api.min_version), api.max_version) for key, api in apis.items()}
        self._ranges = {**ranges, API_VERSIONS: (0, MAX_VERSION)}

    @cached_property
    def _bodies(self) -> Mapping[int, EncodedBody]:
        """By version."""
        return {version: self._encode(version, ErrorCode.none) for version in range(MAX_VERSION + 1)}

    async def handle(self, body: Any, context: RequestContext) -> EncodedBody:
        """The list, or error 35 for a version that is not known: the client repeats its request with one that is."""
        if body is None:
            return self._encode(0, ErrorCode.unsupported_version)
        if context.version >= 3:
            named = body.client_software_name, body.client_software_version
            if not all(SOFTWARE.fullmatch(it[:MAX_SOFTWARE_CHARACTERS]) for it in named):
                return self._encode(context.version, ErrorCode.invalid_request)
            context.connection.software = " ".join(it[:MAX_SOFTWARE_CHARACTERS] for it in named)
        return self._bodies[context.version]

    def _encode(self, version: int, error: ErrorCode) -> EncodedBody:
        listed = [
            {"api_key": key, "min_version": low, "max_version": high}
            for key, (low, high) in sorted(self._ranges.items())
        ]
        values = {"error_code": error, "api_keys": listed, "throttle_time": timedelta()}
        return EncodedBody((encode(build_response(API_VERSIONS, version, values)),))
