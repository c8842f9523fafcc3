"""Loads that publish by reference, and what their work costs without publishing. ``clients`` runs them.

encode_and_put   the rows as Parquet files, one after the other: encoded, then put into the store
by_reference     the same rows with ``write(by_reference=True)``
put_files        files of ``write_upload`` into the store, as they are
publish_files    the same files with ``publish_files``, which copies them
publish_others   Parquet files with the same rows in any order with ``publish_files``, which encodes them again
stream           the same rows with ``write``, through the brokers
"""

from __future__ import annotations

import argparse
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import smq
from benchmarks.loads import payload
from smq_storage.chunks.parquet_codec import ROW_GROUP_ROWS
from smq_storage.object_store.store import Store

Row = dict[str, object]
WriteFiles = Callable[[Path, pa.Table], list[Path]]
FILE_BYTES = 256 << 20
_SEED = 7


def rows_with_keys(size: int, nbytes: int) -> pa.Table:
    """Keys of 8 bytes, and values of ``size`` bytes of which half are random, so that files are not tiny."""
    rows = nbytes // size
    random = np.random.default_rng(_SEED)
    events = np.frombuffer(b"".join(payload.events(size)), np.uint8).reshape(-1, size)
    values = events[np.arange(rows) % len(events)]
    values[:, size // 2 :] = random.integers(0, 256, (rows, size - size // 2), np.uint8)
    keys = random.integers(0, 100_000, rows)
    return pa.table({"key": _binary(keys.view(np.uint8).reshape(rows, 8)), "value": _binary(values)})


def encode_and_put(client: smq.Client, args: argparse.Namespace) -> Row:
    table, store = rows_with_keys(args.size, args.bytes), _store(client, args.topic)
    start = time.perf_counter()
    for part in _parts(table):
        sink = pa.BufferOutputStream()
        _write(sink, part)
        store.put_new(f"_probe/{uuid.uuid4().hex}.parquet", sink.getvalue())
    return _row(table, start)


def by_reference(client: smq.Client, args: argparse.Namespace) -> Row:
    table = rows_with_keys(args.size, args.bytes)
    with client.producer(args.topic, timeout=300) as producer:
        producer.write(table.slice(0, 1)).result(60)
        start = time.perf_counter()
        producer.write(table, by_reference=True).result(300)
        return _row(table, start)


def stream(client: smq.Client, args: argparse.Namespace) -> Row:
    table = rows_with_keys(args.size, args.bytes)
    with client.producer(args.topic, timeout=300) as producer:
        producer.write(table.slice(0, 1)).result(60)
        start = time.perf_counter()
        producer.write(table).result(300)
        return _row(table, start)


def put_files(client: smq.Client, args: argparse.Namespace) -> Row:
    table, store = rows_with_keys(args.size, args.bytes), _store(client, args.topic)
    with tempfile.TemporaryDirectory() as folder:
        files = _finished_files(client, args.topic, Path(folder), table)
        start = time.perf_counter()
        for file in files:
            store.put_new(f"_probe/{uuid.uuid4().hex}.parquet", file.read_bytes())
        return _row(table, start)


def publish_files(client: smq.Client, args: argparse.Namespace) -> Row:
    return _publish(client, args, partial(_finished_files, client, args.topic))


def publish_others(client: smq.Client, args: argparse.Namespace) -> Row:
    return _publish(client, args, _files)


def _publish(client: smq.Client, args: argparse.Namespace, write_files: WriteFiles) -> Row:
    table = rows_with_keys(args.size, args.bytes)
    with tempfile.TemporaryDirectory() as folder, client.producer(args.topic, timeout=300) as producer:
        files = write_files(Path(folder), table)
        producer.write(table.slice(0, 1)).result(60)
        start = time.perf_counter()
        producer.publish_files(files).result(300)
        return _row(table, start)


def _binary(rows: np.ndarray) -> pa.Array:
    """A row of bytes becomes a value."""
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1]
    return pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(rows.tobytes())])


def _store(client: smq.Client, topic: str) -> Store:
    """The one into which a producer uploads."""
    with client._view(topic) as view:
        return view.store.open_for_uploads()


def _parts(table: pa.Table) -> Iterator[pa.Table]:
    rows = max(1, FILE_BYTES * table.num_rows // table.nbytes)
    return (table.slice(at, rows) for at in range(0, table.num_rows, rows))


def _files(folder: Path, table: pa.Table) -> list[Path]:
    files = []
    for number, part in enumerate(_parts(table)):
        files.append(folder / f"{number}.parquet")
        _write(files[-1], part)
    return files


def _finished_files(client: smq.Client, topic: str, folder: Path, table: pa.Table) -> list[Path]:
    files = []
    for number, part in enumerate(_parts(table)):
        files.append(folder / f"{number}.parquet")
        client.write_upload(topic, part, files[-1])
    return files


def _write(sink: object, table: pa.Table) -> None:
    pq.write_table(
        table,
        sink,
        compression="zstd",
        compression_level=1,
        use_dictionary=False,
        write_statistics=False,
        row_group_size=ROW_GROUP_ROWS,
    )


def _row(table: pa.Table, start: float) -> Row:
    return {"seconds": time.perf_counter() - start, "rows": table.num_rows, "bytes": table.nbytes}


WHATS = {f.__name__: f for f in (encode_and_put, by_reference, put_files, publish_files, publish_others, stream)}
