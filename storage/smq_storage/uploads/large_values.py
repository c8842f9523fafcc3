"""Large values: what a row has in the place of its value, and how the value is read (the claim check pattern).

The row's ``value`` is null, and its header ``smq.value`` has the JSON of a ``LargeValue``, which names an object below
``_large_values/<topic uid>/``. Only topics without a schema have them, because others have no column ``value``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import xxhash

from smq_core.errors import DataLost, InvalidRequest
from smq_storage.catalog import paths
from smq_storage.object_store.absence import confirm_missing
from smq_storage.object_store.json_codec import from_json, to_json
from smq_storage.object_store.store import ObjectMissing, Store

# Reserved: a producer refuses a message that has a header of this name.
HEADER = "smq.value"


@dataclass(frozen=True, slots=True)
class LargeValue:
    """An object with the value of one message. ``size`` is in bytes, ``xxh3_128`` is a checksum in hexadecimal."""

    name: str
    size: int
    xxh3_128: str

    @staticmethod
    def of(name: str, value: bytes) -> LargeValue:
        return LargeValue(name, len(value), xxhash.xxh3_128_hexdigest(value))

    def header(self) -> tuple[str, bytes]:
        """The header of the row."""
        return HEADER, to_json(self)


def reserved_header(headers: Iterable[tuple[str, bytes | None]]) -> bool:
    """Whether one of these headers has the reserved name."""
    return any(name == HEADER for name, _ in headers)


def has_reserved_header(headers: pa.Array | pa.ChunkedArray) -> bool:
    """Whether a row of a column ``headers`` has a header of the reserved name. Fast if no row has any header."""
    return bool(_rows_with_reserved_header(headers))


def find_large_values(table: pa.Table) -> dict[int, LargeValue]:
    """The rows of a table of chunk columns whose values are in objects.

    A row with a value, or with a header of that name that something else wrote, has none.
    """
    if "value" not in table.column_names:
        return {}
    headers, values = table.column("headers"), table.column("value")
    found = {}
    for row in _rows_with_reserved_header(headers):
        if not values[row].is_valid and (large := _parse(headers[row].as_py())) is not None:
            found[row] = large
    return found


def read_large_value(store: Store, topic_uid: str, large: LargeValue, segment: str, offset: int) -> bytes:
    """The value of the message at that offset.

    Raises DataLost with the object's path if it is gone, or if it is not what the producer wrote; StoreUnavailable.
    """
    try:
        path = paths.large_value(topic_uid, large.name)
        value = bytes(store.get(path).data)
    except ObjectMissing:
        confirm_missing(store, path)
        raise _lost(f"the object {path} is gone", path, segment, offset) from None
    except InvalidRequest as error:
        raise _lost(error.message, large.name, segment, offset) from None
    if LargeValue.of(large.name, value) != large:
        raise _lost(f"the object {path} was altered", path, segment, offset)
    return value


def without_reserved_header(headers: list[dict[str, object] | None] | None) -> list[dict[str, object] | None] | None:
    """The headers of a row as its program sent them."""
    return [header for header in headers or () if header is None or header["key"] != HEADER] or None


def with_large_value(message: pa.Table, value: bytes) -> pa.Table:
    """A table of one message, with its value, and with the headers that its program sent."""
    schema = message.schema
    headers = without_reserved_header(message.column("headers")[0].as_py())
    columns = {
        "value": pa.array([value], schema.field("value").type),
        "headers": pa.array([headers], schema.field("headers").type),
    }
    return pa.table([columns.get(name, message.column(name)) for name in schema.names], schema=schema)


def _rows_with_reserved_header(headers: pa.Array | pa.ChunkedArray) -> list[int]:
    if headers.null_count == len(headers):
        return []
    import pyarrow.compute as pc  # as in upload_format.footer_of

    rows, at = set[int](), 0
    for chunk in headers.chunks if isinstance(headers, pa.ChunkedArray) else [headers]:
        # As list_parent_indices, and unlike flatten(), this has what a null list hides, and not what a slice does.
        first, stop = chunk.offsets[0].as_py(), chunk.offsets[-1].as_py()
        reserved = pc.equal(chunk.values.slice(first, stop - first).field("key"), HEADER)
        if pc.any(reserved).as_py():
            parents = pc.list_parent_indices(chunk).filter(reserved).to_pylist()
            rows.update(at + row for row in parents if chunk[row].is_valid)
        at += len(chunk)
    return sorted(rows)


def _parse(headers: list[dict[str, object] | None] | None) -> LargeValue | None:
    for header in headers or ():
        if header is None:
            continue
        text = header["value"]
        if header["key"] == HEADER and isinstance(text, bytes):
            try:
                return from_json(LargeValue, text)
            except ValueError:
                return None
    return None


def _lost(what: str, path: str, segment: str, offset: int) -> DataLost:
    return DataLost(
        f"the value of message {offset} of {segment} cannot be read: {what}",
        segment=segment,
        start=offset,
        stop=offset + 1,
        path=path,
    )
