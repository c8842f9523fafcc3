"""Measures how a read of a sealed segment with many chunks is planned: by its file list, and by its chunk chain.

``python -m benchmarks.planning --chunks 10000`` writes such a segment into a separate SeaweedFS. A plan has
each file's path, offsets, size, etag and bounds. Layout and index are read before in both cases, so they do not count.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from smq_core.file_lists.file_list import FileEntry  # noqa: E402
from smq_core.model.chunk_info import ChunkInfo  # noqa: E402
from smq_storage.chunks.chain import ChunkChain  # noqa: E402
from smq_storage.chunks.schemas import chunk_schema  # noqa: E402
from smq_storage.object_store.store import Store  # noqa: E402
from smq_storage.process.seaweedfs import SeaweedProcess  # noqa: E402
from smq_storage.tables.file_lists import write_file_list  # noqa: E402
from smq_storage.tables.segment_files import StoredSegment, files_between  # noqa: E402
from support.data.stored_segment import COLUMNS, SEGMENT, TOPIC, UID, CountingStore, file_list_of_chain, rows_of  # noqa: E402

# Rows of a chunk: planning reads none of them.
ROWS = 10
WRITERS = 8
FILE_LIST_RUNS = 5


@dataclass(frozen=True)
class Planning:
    """What one way to plan took."""

    files: list[FileEntry]
    requests: int
    megabytes: float
    seconds: float


def write_chunks(store: Store, chunks: int) -> StoredSegment:
    """A sealed segment without a file list."""
    chain = ChunkChain(store, TOPIC, UID, SEGMENT)

    def write(number: int) -> None:
        first = number * ROWS
        info = ChunkInfo(segment=SEGMENT, first=first, rows=ROWS, writer="benchmark", nonce=f"n{number}")
        chain.put(info, [(rows_of(first, ROWS), first)], chunk_schema(COLUMNS), key="number")

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, range(chunks)))
    end = chunks * ROWS
    chain.put_seal(ChunkInfo(segment=SEGMENT, first=end, rows=0, writer="benchmark", nonce="seal", sealed=True))
    return StoredSegment(topic=TOPIC, uid=UID, name=SEGMENT, end=end)


def measure(store: CountingStore, plan: Callable[[], list[FileEntry]]) -> Planning:
    store.reset()
    started = time.perf_counter()
    files = plan()
    seconds = time.perf_counter() - started
    made = store.requests
    return Planning(files, len(made.reads) + made.listings, made.bytes / 1e6, seconds)


def compare(store: CountingStore, chunks: int) -> bool:
    """Prints both. False if a target is missed."""
    segment = write_chunks(store, chunks)
    print(f"{chunks} chunks written", flush=True)

    def by_chain() -> list[FileEntry]:
        assert segment.end is not None
        return list(files_between(store, segment, 0, segment.end))

    chain = measure(store, by_chain)
    file_list = file_list_of_chain(ChunkChain(store, TOPIC, UID, SEGMENT), "number")
    assert file_list is not None
    named = replace(segment, file_list=write_file_list(store, TOPIC, UID, file_list))

    def by_file_list() -> list[FileEntry]:
        return list(files_between(store, named, 0, file_list.end))

    runs = [measure(store, by_file_list) for _ in range(FILE_LIST_RUNS)]
    assert all(run.files == list(file_list.files) for run in runs)
    assert [(f.path, f.first, f.etag) for f in chain.files] == [(f.path, f.first, f.etag) for f in file_list.files]
    typical = replace(runs[0], seconds=median(run.seconds for run in runs))
    for name, it in (("chunk chain", chain), ("file_list", typical)):
        print(f"{name:12} {it.requests:6} requests {it.megabytes:8.1f} MB {it.seconds * 1000:10.1f} ms", flush=True)
    ratio = chain.seconds / typical.seconds
    print(f"the file list is {ratio:.0f} times as fast (target 50), in {typical.requests} request (target 1)")
    return ratio >= 50 and typical.requests <= 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=10_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="smq-planning-") as folder, SeaweedProcess(Path(folder)) as seaweed:
        return 0 if compare(CountingStore(seaweed.store("planning")), given.chunks) else 1


if __name__ == "__main__":
    sys.exit(main())
