"""Where the rows of a compacted chunk are: in a file with the merged rows of several chunks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRows:
    """Rows in an object with this size and ``etag``. The times are the bounds of the columns ``timestamp`` and
    ``appended`` in microseconds, and the keys those of the key column (see ``key_bounds``); None is unknown.
    """

    bytes: int
    etag: str
    timestamp_min: int | None = None
    timestamp_max: int | None = None
    appended_min: int | None = None
    appended_max: int | None = None
    key_min: int | str | None = None
    key_max: int | str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedRows(StoredRows):
    """All rows of the file ``name`` below ``_compacted/<segment>/``.

    The bounds are those of the file's entry in the file list. They are here so that the chunk chain alone says all that
    the file list says.
    """

    name: str
