"""A program's own Parquet files, checked and read in parts of limited size."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from smq.producing.encoding.batch_encoder import BatchEncoder
from smq.producing.encoding.parquet_batches import MICROS, NANOS, read_batches
from smq.producing.uploads.finished_files import FILE_BYTES, encoded_upload, may_be_finished
from smq.producing.uploads.upload_encoder import EncodedUpload
from smq_core.errors import InvalidRequest, SchemaMismatch
from smq_storage.conversion.exact_cast import InexactValue

log = logging.getLogger(__name__)

# About how many bytes are decoded at a time.
READ_BYTES = 8 << 20

MAX_BATCH_ROWS = 1 << 13
# This number of rows of a row group shows how large its rows are when they are decoded. The footer shows only their
# encoded size, which is far less if a large value is repeated.
PROBED_ROWS = 64

# How much of each column is read at a time.
BUFFER_BYTES = 1 << 20

Source: TypeAlias = "str | os.PathLike[str] | IO[bytes]"

# Opens ``s3://bucket/path``. Raises FileNotFoundError, StoreDenied, StoreUnavailable.
OpenUrl: TypeAlias = "Callable[[str], IO[bytes]]"


@dataclass(frozen=True, slots=True)
class ParquetSource:
    """A file by its path, by its ``s3://`` URL, or as a file object, which must allow seek.

    ``name`` is how errors and receipts call it. ``open_url`` is there if it is a URL.
    """

    name: str
    source: Source
    open_url: OpenUrl | None = None

    @staticmethod
    def of(source: Source, number: int, open_url: OpenUrl | None = None) -> ParquetSource:
        """Raises InvalidRequest if it is neither a path nor a file object."""
        if isinstance(source, str) and source.startswith("s3://") and open_url is not None:
            return ParquetSource(source, source, open_url)
        if isinstance(source, (str, os.PathLike)):
            return ParquetSource(os.fspath(source), source)
        if hasattr(source, "read") and hasattr(source, "seek"):
            return ParquetSource(str(getattr(source, "name", f"files[{number}]")), source)
        raise InvalidRequest(f"files[{number}] must be a path or a binary file, not {type(source).__name__}")

    @staticmethod
    def of_all(sources: Sequence[Source], open_url: OpenUrl) -> list[ParquetSource]:
        """Raises InvalidRequest if one is no file, or if a file is given twice."""
        found = [ParquetSource.of(source, number, open_url) for number, source in enumerate(sources)]
        numbers: dict[str | int, int] = {}
        for number, it in enumerate(found):
            first = numbers.setdefault(it._identity(), number)
            if first != number:
                raise InvalidRequest(
                    f"files[{number}] is the same file as files[{first}], {it.name}: its rows would be in the log "
                    "twice. Name it once, or publish it again with another call"
                )
        return found

    def _identity(self) -> str | int:
        """Equal for two sources of one file."""
        if self.open_url is not None:
            return self.name
        if isinstance(self.source, (str, os.PathLike)):
            return os.path.realpath(self.source)
        return id(self.source)

    def check(self, encoder: BatchEncoder, key: str | None) -> None:
        """Whether it is a Parquet file with fitting columns, by its footer. Its values are checked when they are read.

        Raises InvalidRequest, SchemaMismatch.
        """
        with self._open() as file:
            schema = file.schema_arrow
            self._checked(schema.empty_table(), encoder, key, None)
            try:
                encoder.check_types(schema, _columns_with_values(file.metadata), key)
            except SchemaMismatch as error:
                raise self._named(error) from None

    def read(self, encoder: BatchEncoder, key: str | None, part_bytes: int) -> Iterator[tuple[pa.Table, str | None]]:
        """Checked parts of about ``part_bytes``, each with the name of its key column.

        Raises InvalidRequest, SchemaMismatch with the file's row.
        """
        with self._open() as file:
            collected: list[pa.RecordBatch] = []
            size = first_row = 0
            for batch in self._batches(file):
                # Times of INT96 may have another unit in the next batch.
                if size >= part_bytes or (collected and batch.schema != collected[0].schema):
                    part = pa.Table.from_batches(collected)
                    yield self._checked(part, encoder, key, first_row)
                    first_row += part.num_rows
                    collected, size = [], 0
                collected.append(batch)
                size += batch.nbytes
            if collected:
                yield self._checked(pa.Table.from_batches(collected), encoder, key, first_row)

    def read_finished(self, encoder: BatchEncoder, key: str | None) -> EncodedUpload | None:
        """The whole file, if it can be published as it is. Raises InvalidRequest if it cannot be read."""
        with self._open() as file:
            if not may_be_finished(file.metadata, encoder, key):
                return None
        try:
            data = self._read_bytes(FILE_BYTES)
            found = encoded_upload(data, encoder, key) if data is not None else None
        except (pa.ArrowException, OSError) as error:
            raise InvalidRequest(f"{self.name} cannot be read: {error}") from None
        if found is None:
            log.info(
                "%s is too large to be copied, or not as write_upload wrote it, so its rows are encoded again",
                self.name,
            )
        return found

    def _read_bytes(self, limit: int) -> bytes | None:
        """The whole file; None if it has more than ``limit`` bytes."""
        if self.open_url is not None:
            with self.open_url(self.name) as file:
                data = file.read(limit + 1)
        elif isinstance(self.source, (str, os.PathLike)):
            with Path(self.source).open("rb") as file:
                data = file.read(limit + 1)
        else:
            self.source.seek(0)
            data = self.source.read(limit + 1)
        return data if len(data) <= limit else None

    @contextlib.contextmanager
    def _open(self, int96_unit: str = MICROS) -> Iterator[pq.ParquetFile]:
        file = self._open_file(int96_unit)
        try:
            yield file
        finally:
            file.close(force=self.open_url is not None)  # a program's own file object stays open

    def _open_file(self, int96_unit: str) -> pq.ParquetFile:
        try:
            # With pre_buffer, Arrow would read whole row groups and keep them, and some files are one row group.
            source = self.source if self.open_url is None else self.open_url(self.name)
            return pq.ParquetFile(
                source,
                pre_buffer=False,
                buffer_size=BUFFER_BYTES,
                page_checksum_verification=True,
                coerce_int96_timestamp_unit=int96_unit,
            )
        except FileNotFoundError:
            raise InvalidRequest(f"there is no file {self.name}") from None
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InvalidRequest(f"{self.name} is not a Parquet file that can be read: {error}") from None

    def _batches(self, file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
        first_row = 0
        with contextlib.ExitStack() as opened:
            open_nanos = functools.cache(lambda: opened.enter_context(self._open(NANOS)))
            try:
                for number in range(file.metadata.num_row_groups):
                    rows = _rows_at_a_time(file, number)
                    batches = read_batches(file, open_nanos, batch_size=rows, row_groups=[number])
                    yield from (batch for batch in batches if batch.num_rows)
                    first_row += file.metadata.row_group(number).num_rows
            except InexactValue as problem:
                raise SchemaMismatch(f"{self.name}: {problem.located(first_row + problem.row)}") from None
            except (pa.ArrowException, OSError) as error:
                raise InvalidRequest(f"{self.name} cannot be read: {error}") from None

    def _checked(
        self, part: pa.Table, encoder: BatchEncoder, key: str | None, first_row: int | None
    ) -> tuple[pa.Table, str | None]:
        try:
            return encoder.check(part, key)
        except SchemaMismatch as error:
            where = f" (rows counted from row {first_row} on)" if first_row else ""
            raise self._named(error, where) from None
        except InvalidRequest as error:
            raise InvalidRequest(f"{self.name}: {error.message}") from None

    def _named(self, error: SchemaMismatch, where: str = "") -> SchemaMismatch:
        return SchemaMismatch(f"{self.name}{where}: {error.message}", expected=error.expected, topic=error.topic)


def _columns_with_values(metadata: pq.FileMetaData) -> set[str]:
    """The columns, other than nested ones, of which the footer shows that not all values are null."""
    found = set[str]()
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            statistics = column.statistics
            if statistics is not None and statistics.has_null_count and statistics.null_count < column.num_values:
                found.add(column.path_in_schema)
    return found & set(metadata.schema.to_arrow_schema().names)


def _rows_at_a_time(file: pq.ParquetFile, number: int) -> int:
    """How many rows of this row group are decoded at a time. Raises ArrowException, OSError."""
    group = file.metadata.row_group(number)
    if group.num_rows <= PROBED_ROWS:
        return PROBED_ROWS
    probed = next(file.iter_batches(batch_size=PROBED_ROWS, row_groups=[number]))
    row_bytes = max(group.total_byte_size // group.num_rows, probed.nbytes // max(probed.num_rows, 1), 1)
    return max(1, min(READ_BYTES // row_bytes, MAX_BATCH_ROWS))
