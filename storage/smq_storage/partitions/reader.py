"""Reads the stored messages of one partition by Kafka offset."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from smq_core.errors import CorruptChunk, DataLost, SmqError
from smq_core.model.entities import MILLISECOND
from smq_storage.partitions.history import PartitionHistory, Place

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """Messages of one partition with the Kafka offsets ``first_offset``, ``first_offset + 1``, …, at least one.

    ``rows`` has the columns of chunks. All are of one segment, whose number is ``epoch``.
    """

    first_offset: int
    rows: pa.Table
    epoch: int

    @property
    def end(self) -> int:
        """The offset after the last one."""
        return self.first_offset + int(self.rows.num_rows)


class PartitionReader:
    """Reads what is in files, by blocking requests. Safe from many threads. Errors are those of PartitionHistory."""

    def __init__(self, history: PartitionHistory) -> None:
        self._history = history

    def read_partition(self, partition: int, offset: int, max_bytes: int) -> PartitionRows | None:
        """The first messages at this Kafka offset or after it, with about ``max_bytes``; None if no file has one yet.

        The first one is above ``offset`` only if there is none at it, after a loss. Raises DataLost also if retention
        has removed the message at ``offset``.
        """
        return self._repeated(lambda: self._read(partition, offset, max_bytes))

    def offset_for_time(self, partition: int, timestamp_ms: int) -> tuple[int, int] | None:
        """The first message with this timestamp or a later one: its Kafka offset and its timestamp in milliseconds.

        None if no file has one.
        """
        since = timestamp_ms * MILLISECOND
        found = self._repeated(lambda: self._history.find_time(partition, since))
        return (found[0], found[1] // MILLISECOND) if found is not None else None

    def _read(self, partition: int, offset: int, max_bytes: int) -> PartitionRows | None:
        start = self._history.log_start(partition)
        if offset < start:
            raise DataLost(
                f"the messages {offset} to {start - 1} of partition {partition} of {self._history.topic.name} are "
                "gone: retention has removed them",
                segment="",
                start=offset,
                stop=start,
            )
        first = self._history.find(partition, offset)
        if first is None:
            return None
        rows, left = self._rows(first, partition, max_bytes)
        tables, end = [rows], first.offset + rows.num_rows
        with suppress(SmqError):  # whoever reads from that message on gets the error
            while left and (following := self._following(first, partition, end, left)) is not None:
                rows, left = following
                if rows.schema != tables[0].schema:
                    break
                tables.append(rows)
                end += rows.num_rows
        return PartitionRows(first.offset, pa.concat_tables(tables), first.epoch)

    def _following(self, first: Place, partition: int, offset: int, max_bytes: int) -> tuple[pa.Table, int] | None:
        """Messages from this offset on, as of ``FileRows.rows``.

        None if there is no message yet, if it is in another segment, or comes after a jump.
        """
        place = self._history.find(partition, offset)
        if place is None or (place.epoch, place.offset) != (first.epoch, offset):
            return None
        return self._rows(place, partition, max_bytes)

    def _rows(self, place: Place, partition: int, max_bytes: int) -> tuple[pa.Table, int]:
        rows, left = self._history.rows.rows(place.segment, place.file, partition, place.index, max_bytes)
        count = self._history.rows.count(place.segment, place.file, partition)
        if count != place.end - place.start or not rows.num_rows:
            raise CorruptChunk(
                f"{place.file.path} has {count} messages of partition {partition}, and not those with the Kafka "
                f"offsets {place.start} to {place.end - 1}",
                path=place.file.path,
            )
        return rows, left

    def _repeated(self, read: Callable[[], T]) -> T:
        """Files that were merged, or removed by retention, are gone. Then the index says what is there instead."""
        try:
            return read()
        except DataLost:
            self._history.refresh()
            return read()
