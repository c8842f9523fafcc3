"""Avoids pauses of a broker: late imports, page faults, long garbage collections."""

from __future__ import annotations

import gc

import pyarrow as pa

from smq_core.model.chunk_info import ChunkInfo
from smq_storage.chunks.parquet_codec import encode_chunk
from smq_storage.chunks.schemas import TIMESTAMP, chunk_schema
from smq_storage.process import allocator

MIB = 1024 * 1024


def preload_arrow() -> None:
    """Does now what Arrow does once, at the first use.

    Its first conversion of a time tries to import pandas, which ``import_blocker`` refuses. The first Parquet file of a
    process takes 5 to 8 ms more than later ones.
    """
    pa.scalar(0, TIMESTAMP)
    encode_chunk([], ChunkInfo(segment="", first=0, rows=0, writer="", nonce=""), chunk_schema())


def keep_freed_memory(limit: int) -> bool:
    """Makes glibc reuse freed memory instead of returning it. ``limit`` is the memory of this process, in bytes.

    Batches are received into buffers of about 1 MB. By default glibc maps and unmaps each of them, and the page faults
    took 40 % of a broker's CPU time. From now on ``MemoryTrimmer`` decides when memory is returned. Returns False if
    this is not glibc.
    """
    return allocator.set_malloc(
        {
            allocator.MMAP_THRESHOLD: 32 * MIB,
            allocator.TRIM_THRESHOLD: allocator.NEVER,
            allocator.TOP_PAD: min(limit // 4, 2**30),
        }
    )


def tune_garbage_collector() -> None:
    """Excludes present objects from cyclic garbage collection. Call it when everything is imported and constructed.

    By default each collection visits every object of the process and every entry of every tail. With 10000 entries that
    takes 30 to 60 ms, in which nothing is acked. Entries are in no cycles.
    """
    gc.collect()
    allocator.release_memory()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
