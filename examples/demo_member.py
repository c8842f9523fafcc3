"""One member of the demo's consumer group, in its own process."""

from __future__ import annotations

import multiprocessing as mp
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import smq

GROUP = "report"
_SPAWN = mp.get_context("spawn")


class DemoMember:
    """Reads until it is stopped. ``count`` is the number of messages so far."""

    def __init__(self, leader: str, path: Path) -> None:
        self._path = path
        self._count: Any = _SPAWN.Value("q", 0)
        self._stop = _SPAWN.Event()
        self._process = _SPAWN.Process(target=_read, args=(leader, path, self._count, self._stop), daemon=True)
        self._process.start()

    @property
    def count(self) -> int:
        return int(self._count.value)

    def stop(self) -> pa.Table:
        """Stops reading. Returns the messages in order: read_at, segment, offset, carrier, tailnum, number."""
        self._stop.set()
        self._process.join(30)
        if self._process.exitcode != 0:
            raise SystemExit(f"a member of the group failed (exit code {self._process.exitcode}); see above")
        return pq.read_table(self._path)


def _read(leader: str, path: Path, count: Any, stop: Event) -> None:
    read: list[pa.Table] = []
    # With auto_commit a batch counts as done at the next poll, so a segment that moves to the other member is not read
    # again.
    with (
        smq.connect(leader) as client,
        client.consumer("flights", group=GROUP, start="earliest", auto_commit=True) as consumer,
    ):
        while not stop.is_set():
            batch = consumer.poll(0.2)
            if batch is not None:
                read.append(_noted(batch))
                count.value += len(batch)
    pq.write_table(pa.concat_tables(read) if read else _noted(None), path)


def _noted(batch: smq.Batch | None) -> pa.Table:
    rows = len(batch) if batch else 0
    first = batch.first_offset if batch else 0
    made = {
        "read_at": pa.repeat(pa.scalar(time.monotonic_ns()), rows),  # the same clock in every process
        "segment": pa.repeat(batch.segment if batch else "", rows),
        "offset": pa.array(range(first, first + rows), pa.int64()),
    }
    for name, type_ in {"carrier": pa.string(), "tailnum": pa.string(), "number": pa.int64()}.items():
        made[name] = batch.table[name] if batch else pa.array([], type_)
    return pa.table(made)
