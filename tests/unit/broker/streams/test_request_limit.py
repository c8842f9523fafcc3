"""Requests that are too large are refused, and their memory is returned when the broker is idle."""

from __future__ import annotations

import pyarrow as pa
import pytest

from smq_broker.memory.trimmer import IDLE_MAX_BYTES, IDLE_PERIOD_SECONDS, MemoryTrimmer
from smq_broker.streams.request_limit import MAX_REQUEST_BYTES, RequestLimit
from smq_core.errors import InvalidRequest


@pytest.mark.parametrize("wrap", [bytes, pa.py_buffer])
def test_a_request_that_is_too_large_is_refused_and_counted(wrap: type) -> None:
    limit = RequestLimit()
    largest = wrap(bytes(MAX_REQUEST_BYTES))
    assert limit.check(largest) is largest and limit.refused_bytes == 0
    with pytest.raises(InvalidRequest, match=f"has {MAX_REQUEST_BYTES + 1} bytes, at most"):
        limit.check(wrap(bytes(MAX_REQUEST_BYTES + 1)))
    assert limit.refused_bytes == MAX_REQUEST_BYTES + 1


def test_the_memory_of_refused_requests_is_returned_after_an_idle_period() -> None:
    limit = RequestLimit()
    trimmer = MemoryTrimmer(lambda: limit.refused_bytes)
    assert not trimmer.should_trim(0.0)
    for _ in range(IDLE_MAX_BYTES // MAX_REQUEST_BYTES):
        with pytest.raises(InvalidRequest):
            limit.check(bytes(MAX_REQUEST_BYTES + 1))
    assert not trimmer.should_trim(IDLE_PERIOD_SECONDS), "it was busy"
    assert trimmer.should_trim(2 * IDLE_PERIOD_SECONDS)
