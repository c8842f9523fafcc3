"""What a small batch may cost: a few kilobytes that are megabytes once they are decompressed."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from smq_broker.kafka.apis import produce
from smq_broker.kafka.apis.produce import DECODE_IN_LOOP_BYTES, DECOMPRESSED_RATIO, ProduceApi
from smq_broker.kafka.executor import Blocking, LoopCalls
from smq_broker.kafka.protocol.produce_request import ProducedPartition
from smq_broker.kafka.records.batch_header import Compression
from smq_broker.kafka.records.errors import RecordsTooLarge
from support.processes.broker import make_topic
from unit.broker.kafka.test_record_batches import NOW_MS, library_batch

MAX_BATCH = 1 << 20


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Those in which batches were decoded to their end."""
    found: list[threading.Thread] = []
    made = produce.incoming_batch

    def incoming(*words: Any, **more: Any) -> Any:
        batch = made(*words, **more)
        found.append(threading.current_thread())
        return batch

    monkeypatch.setattr(produce, "incoming_batch", incoming)
    return found


async def decoded(value_bytes: int) -> Any:
    loop = asyncio.get_running_loop()
    api = ProduceApi(leaders=None, blocking=Blocking(), calls=LoopCalls(loop), max_batch=MAX_BATCH)  # type: ignore[arg-type]
    batch = library_batch([(NOW_MS, None, bytes(value_bytes), [])], Compression.ZSTD)
    return await api._decode(ProducedPartition(0, memoryview(bytearray(batch))), make_topic())


async def test_what_becomes_large_is_decoded_in_another_thread(threads: list[threading.Thread]) -> None:
    await decoded(1000)
    await decoded(DECOMPRESSED_RATIO * DECODE_IN_LOOP_BYTES)
    assert [it is threading.current_thread() for it in threads] == [True, False]


async def test_what_becomes_larger_than_a_batch_is_refused() -> None:
    with pytest.raises(RecordsTooLarge):
        await decoded(MAX_BATCH)
