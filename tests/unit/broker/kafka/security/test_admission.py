"""A client above its quota waits before its next batch, and each response says how long it had better wait."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from kio.schema.errors import ErrorCode

from smq_broker.kafka.apis.admission import MAX_THROTTLE_SECONDS, Admission
from smq_broker.kafka.protocol.sessions import OPEN_ACCESS, OpenRequestAccess
from smq_broker.kafka.records.batch_header import count_records
from smq_core.errors import QuotaExceeded


class Debt:
    """A stream that has to wait for ``left_seconds``, of which each wait pays all."""

    is_limited = True

    def __init__(self, left_seconds: float = 0.0) -> None:
        self.left_seconds = left_seconds
        self.used: list[tuple[int, int]] = []

    def use(self, nbytes: int, messages: int) -> None:
        self.used.append((nbytes, messages))

    def pause_seconds(self) -> float:
        return self.left_seconds

    def close(self) -> None: ...


class Limited(OpenRequestAccess):
    def __init__(self, stream: Debt | QuotaExceeded) -> None:
        self._stream = stream

    def stream(self, name: str) -> Debt:
        if isinstance(self._stream, QuotaExceeded):
            raise self._stream
        return self._stream


async def test_who_has_used_too_much_waits_until_it_is_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    debt = Debt(2.5)
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        debt.left_seconds = max(0.0, debt.left_seconds - 2.0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    admission = Admission(Limited(debt))
    assert await admission.admit("t") is ErrorCode.none
    assert slept == [2.5, 0.5] and admission.waited_seconds == 3.0


async def test_a_response_says_how_long_to_wait() -> None:
    debt = Debt()
    admission = Admission(Limited(debt))
    assert await admission.admit("t") is ErrorCode.none
    assert admission.is_limited("t") and not admission.is_limited("other") and not admission.is_limited(None)
    admission.use("t", 10, 2)
    assert debt.used == [(10, 2)]
    debt.left_seconds = 1.25
    assert admission.throttle_ms() == 1250
    debt.left_seconds = 1000.0
    assert admission.throttle_ms() == MAX_THROTTLE_SECONDS * 1000


async def test_more_connections_than_the_quota_has_streams_are_refused() -> None:
    admission = Admission(Limited(QuotaExceeded("too many", identity="ada", topic="t", limit=1)))
    assert await admission.admit("t") is ErrorCode.request_timed_out, "clients try again"


async def test_without_a_quota_nothing_is_counted() -> None:
    admission = Admission(OPEN_ACCESS)
    assert await admission.admit("t") is await admission.admit(None) is ErrorCode.none
    assert not admission.is_limited("t") and admission.throttle_ms() == 0


def batch_of(*values: bytes) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for offset, value in enumerate(values):
        builder.append(offset, 1, None, value, [])
    return bytes(builder.build())


def test_records_of_several_batches_are_counted() -> None:
    batches = batch_of(b"a", b"b") + batch_of(b"c")
    assert count_records(batches) == count_records(memoryview(batches)) == 3
    assert count_records(b"") == 0
