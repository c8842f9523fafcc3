"""How a task divides its rows into uploads."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyspark_smq.sink import staging
from pyspark_smq.sink.staging import upload_parts


def batch(rows: int) -> pa.RecordBatch:
    """It has 8 bytes for each row."""
    return pa.record_batch({"n": pa.array(range(rows), pa.int64())})


@pytest.mark.parametrize(
    ("rows", "parts"),
    [
        ([], [(0, True)]),
        ([3], [(3, True)]),
        ([5, 5], [(10, True)]),
        ([5, 5, 1], [(10, False), (1, True)]),
        ([6, 6, 6], [(6, False), (6, False), (6, True)]),
        ([6, 6, 3, 3], [(6, False), (9, False), (3, True)]),
        ([20, 1], [(20, False), (1, True)]),
    ],
)
def test_no_part_is_larger_than_an_upload(
    monkeypatch: pytest.MonkeyPatch, rows: list[int], parts: list[tuple[int, bool]]
) -> None:
    monkeypatch.setattr(staging, "UPLOAD_BYTES", 80)
    assert [(table.num_rows, is_last) for table, is_last in upload_parts(map(batch, rows))] == parts
