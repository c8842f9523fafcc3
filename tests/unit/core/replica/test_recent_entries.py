"""Where an offset is among entries is found from either end."""

from __future__ import annotations

from collections import deque
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from smq_core.replica.log_entries import BatchId, Entry, IncomingBatch
from smq_core.replica.recent_entries import count_below, entries_from


def entries_of(rows: list[int]) -> deque[Entry]:
    """Contiguous entries with that number of rows each, from offset 10 on."""
    starts = accumulate(rows, initial=10)
    return deque(
        Entry(
            first=first,
            batch=IncomingBatch(
                id=BatchId("p", 1, number), rows=count, nbytes=1, partition_min=0, partition_max=0, payload=None
            ),
            appended=0,
        )
        for number, (first, count) in enumerate(zip(starts, rows, strict=False))
    )


@given(rows=st.lists(st.integers(1, 3), max_size=40), data=st.data())
def test_it_counts_the_entries_below_an_offset(rows: list[int], data: st.DataObject) -> None:
    entries = entries_of(rows)
    offset = data.draw(st.integers(8, 12 + sum(rows)))
    below = [entry for entry in entries if entry.end <= offset]
    assert count_below(entries, offset) == len(below)
    assert list(entries_from(entries, offset)) == list(entries)[len(below) :]
