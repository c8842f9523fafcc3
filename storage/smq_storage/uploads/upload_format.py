"""The format of an upload: a Parquet file of messages that are stably sorted by partition.

Its columns are those of batches on the wire (``message_schema`` of one version of the topic's schema), without
``appended``. The key ``smq-upload`` of its key-value metadata has the JSON of an ``UploadFooter``. So the rows of any
range of partitions are a range of rows, which the footer alone shows. Its pages have checksums, and so has the whole.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from smq_core.errors import CorruptChunk
from smq_core.model.keyspace import KeyRange
from smq_storage.chunks.decoded_sizes import max_decoded_bytes
from smq_storage.chunks.parquet_codec import ROW_GROUP_ROWS, decode_footer, footer_bytes
from smq_storage.object_store.json_codec import from_json, to_json

if TYPE_CHECKING:
    from typing_extensions import Buffer

KEY = "smq-upload"
# The key of the checksum of all bytes before the Parquet footer, in hexadecimal. Older files have none.
CHECKSUM = "smq-upload.xxh3_128"
PARTITION = "partition"

# The most bytes of rows of a row group before they are encoded, or one row: readers decode whole row groups. Long
# rows reach that before ``ROW_GROUP_ROWS``.
ROW_GROUP_BYTES = 8 << 20

# A file is no upload if a row group of several rows may take more in memory. That leaves room for types that are
# larger in Parquet than in Arrow.
MAX_ROW_GROUP_BYTES = 8 * ROW_GROUP_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadFooter:
    """What an upload says of itself.

    ``partitions`` has the number of rows of each partition that has any, ``(partition, rows)``, in the order of the
    file, which is that of the partitions. ``producer`` and ``epoch`` are those of the uploading process.
    """

    topic_uid: str
    schema_version: int
    producer: str
    epoch: int
    rows: int
    partitions: tuple[tuple[int, int], ...]

    def rows_of(self, partitions: KeyRange) -> tuple[int, int]:
        """The rows with these partitions: the first one, and how many there are."""
        before = sum(rows for partition, rows in self.partitions if partition < partitions.start)
        return before, sum(rows for partition, rows in self.partitions if partition in partitions)

    def partitions_of(self, first_row: int, rows: int) -> tuple[int, int] | None:
        """The lowest and the highest partition of these rows; None if the file does not have all of them."""
        stop, at, found = first_row + rows, 0, list[int]()
        for partition, count in self.partitions:
            if at < stop and first_row < at + count:
                found.append(partition)
            at += count
        return (found[0], found[-1]) if found and first_row >= 0 and stop <= at else None


@dataclass(frozen=True, slots=True)
class ParsedUpload:
    """An upload's Parquet footer: its columns, and ``(rows, lowest partition, highest partition)`` per row group.

    The partitions of a row group are None where the writer stored no statistics. No row group of several rows takes
    more than ``largest`` bytes in memory.
    """

    footer: UploadFooter
    schema: pa.Schema
    row_groups: tuple[tuple[int, int | None, int | None], ...]
    largest: int


def sort_order(partitions: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """The rows in the order of their partitions, as indices; those of one partition stay in their order."""
    if len(partitions) and partitions.max() < 1 << 16:
        partitions = partitions.astype(np.uint16)  # numpy sorts these by radix, several times as fast
    return np.argsort(partitions, kind="stable")


def sort_by_partition(table: pa.Table) -> pa.Table:
    """The table with its rows in ``sort_order``."""
    return table.take(sort_order(table.column(PARTITION).to_numpy()))


def footer_of(table: pa.Table, topic_uid: str, schema_version: int, producer: str, epoch: int) -> UploadFooter:
    """The footer of a file with these sorted rows."""
    # Imported here because it takes 80 ms and 9 MB, which a broker saves: it reads footers only.
    import pyarrow.compute as pc

    counts = pc.value_counts(table.column(PARTITION).combine_chunks())
    pairs = sorted(zip(counts.field(0).to_pylist(), counts.field(1).to_pylist(), strict=True))
    return UploadFooter(
        topic_uid=topic_uid,
        schema_version=schema_version,
        producer=producer,
        epoch=epoch,
        rows=table.num_rows,
        partitions=tuple(pairs),
    )


def write_upload(sink: Any, table: pa.Table, footer: UploadFooter) -> None:
    """Writes sorted rows as an upload into a file or an Arrow output stream. The store gets it by one PUT."""
    write_upload_batches(sink, table.schema, [table], footer)


def write_upload_batches(
    sink: Any, schema: pa.Schema, batches: Iterable[pa.Table | pa.RecordBatch], footer: UploadFooter
) -> None:
    """As ``write_upload``, from rows that need not be in memory together. Each batch is one row group or several."""
    summed = _ChecksumSink(sink)
    with pq.ParquetWriter(
        summed,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=[PARTITION],
        write_statistics=[PARTITION, "timestamp"],
        write_page_checksum=True,
    ) as writer:
        for batch in batches:
            for part in _split_into_row_groups(batch):
                writer.write(part)
        writer.add_key_value_metadata({KEY: to_json(footer).decode(), CHECKSUM: summed.hexdigest()})


def parse_upload(tail: Buffer) -> ParsedUpload:
    """Parses the end of an upload, which holds its whole Parquet footer. Raises CorruptChunk if it is not an upload."""
    return parse_upload_footer(decode_footer(tail))


def parse_upload_footer(metadata: pq.FileMetaData) -> ParsedUpload:
    """What the footer says. Raises CorruptChunk if it is not that of an upload."""
    try:
        schema = metadata.schema.to_arrow_schema().remove_metadata()
        text = (metadata.metadata or {}).get(KEY.encode())
        if text is None:
            raise CorruptChunk(f"a Parquet file without the metadata {KEY!r}")
        footer = from_json(UploadFooter, text)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptChunk(f"the upload's footer cannot be read: {error}") from None
    groups = tuple(_row_group(metadata.row_group(n), schema) for n in range(metadata.num_row_groups))
    several = [number for number, (rows, *_) in enumerate(groups) if rows > 1]
    largest = max((max_decoded_bytes(metadata, number) for number in several), default=0)
    return ParsedUpload(footer, schema, groups, largest)


def is_intact(data: Buffer, metadata: pq.FileMetaData) -> bool:
    """Whether the bytes before the footer of a whole file are those that were written. False without a checksum."""
    rows = memoryview(data)[: -footer_bytes(data)]
    return bool((metadata.metadata or {}).get(CHECKSUM.encode()) == xxhash.xxh3_128_hexdigest(rows).encode())


class _ChecksumSink(io.RawIOBase):
    """Passes on what is written, and sums it up."""

    def __init__(self, sink: Any) -> None:
        super().__init__()
        self._sink = sink
        self._sum = xxhash.xxh3_128()

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._sum.update(data)
        self._sink.write(data)
        return len(data)

    def hexdigest(self) -> str:
        return self._sum.hexdigest()


def _split_into_row_groups(table: pa.Table | pa.RecordBatch) -> Iterator[pa.Table | pa.RecordBatch]:
    """Copies nothing."""
    rows = max(1, min(ROW_GROUP_ROWS, table.num_rows * ROW_GROUP_BYTES // max(table.nbytes, 1)))
    for at in range(0, table.num_rows, rows):
        yield from _split_long_rows(table.slice(at, rows))


def _split_long_rows(table: pa.Table | pa.RecordBatch) -> Iterator[pa.Table | pa.RecordBatch]:
    """Rows that are longer than most others of the file make a part too large."""
    if table.num_rows == 1 or table.nbytes <= ROW_GROUP_BYTES:
        yield table
        return
    half = table.num_rows // 2
    yield from _split_long_rows(table.slice(0, half))
    yield from _split_long_rows(table.slice(half))


def _row_group(group: pq.RowGroupMetaData, schema: pa.Schema) -> tuple[int, int | None, int | None]:
    at = schema.get_field_index(PARTITION)
    statistics = group.column(at).statistics if at == 0 else None
    if statistics is None or not statistics.has_min_max:
        return group.num_rows, None, None
    return group.num_rows, statistics.min, statistics.max
