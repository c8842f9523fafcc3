"""Which entries the next chunk takes. Primaries and sealers cut the log into chunks by the same rule."""

from __future__ import annotations

from collections.abc import Iterable

from smq_core.replica.log_entries import Entry

# A chunk names at most this many objects, because all of them are in its footer, which is read often.
MAX_LARGE_VALUES = 1000


def entries_of_next_chunk(entries: Iterable[Entry], max_bytes: int) -> tuple[Entry, ...]:
    """The first of these contiguous entries, at least one, as many as fit into ``max_bytes``.

    An entry with a reference is a separate chunk, because its rows are in another file. So the entries before it are
    one chunk, and the next one begins after it. A chunk of several entries names at most ``MAX_LARGE_VALUES`` objects.
    """
    taken: list[Entry] = []
    size = large_values = 0
    for entry in entries:
        batch = entry.batch
        size += batch.nbytes
        is_reference = batch.reference is not None
        large_values += len(batch.large_values)
        if taken and (is_reference or size > max_bytes or large_values > MAX_LARGE_VALUES):
            break
        taken.append(entry)
        if is_reference:
            break
    return tuple(taken)
