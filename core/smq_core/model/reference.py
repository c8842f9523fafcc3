"""A reference: rows of a file that a producer has uploaded, published as one batch without passing a broker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The rows ``first_row .. first_row + rows - 1`` of an upload.

    ``upload`` is the file's name below ``_uploads/<topic uid>/``, and ``etag`` the store's for its content. ``bytes``
    is the share of the file that these rows take. The rows have partitions ``partition_min .. partition_max``, and the
    producer's timestamps ``timestamp_min .. timestamp_max``, in microseconds.
    """

    upload: str
    etag: str
    first_row: int
    rows: int
    bytes: int
    partition_min: int
    partition_max: int
    timestamp_min: int
    timestamp_max: int
    schema_version: int = 0

    @property
    def stop_row(self) -> int:
        return self.first_row + self.rows
