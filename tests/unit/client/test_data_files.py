"""What tools get of a topic's files: each message once, whatever kind of file it is in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smq.data_files import DataFile, DataFiles, duckdb_query, duckdb_settings
from smq_core.errors import InvalidRequest
from smq_core.file_lists.file_list import FileEntry
from smq_storage.catalog import paths
from smq_storage.object_store.store import StoreSettings
from smq_storage.tables.listed_files import ListedFile, kind_of

LOCAL = StoreSettings(url="s3://smq", endpoint="http://127.0.0.1:8333")
CHUNK = paths.chunk("default/t", "uid", "t-0-8-0", 0)
COMPACTED = paths.compacted_file("default/t", "uid", "t-0-8-0", 0, "nonce")
UPLOAD = paths.uploaded_file("uid", "p-1-1-nonce.parquet")


def data_file(path: str, segment: str = "t-0-8-0", first: int = 0, rows: int = 3, first_row: int = 0) -> DataFile:
    file_list = FileEntry(
        path=path, first=first, rows=rows, bytes=100, etag="etag", first_row=first_row, appended_max=1_000_000
    )
    return DataFile.of(ListedFile(segment, kind_of(path), file_list), "s3://smq")


def data_files(files: Sequence[DataFile]) -> DataFiles:
    return DataFiles("default/t", "uid", files, LOCAL)


def run(files: Sequence[DataFile], folder: Path, *tables: pa.Table) -> list[tuple[object, ...]]:
    """The rows of the query, on local files with these tables."""
    query = duckdb_query(files)
    for number, (url, table) in enumerate(zip(dict.fromkeys(file.url for file in files), tables, strict=True)):
        pq.write_table(table, folder / f"{number}.parquet")
        query = query.replace(url, str(folder / f"{number}.parquet"))
    return duckdb.sql(f"SELECT n, _segment, _offset FROM ({query}) ORDER BY n").fetchall()


def test_columns_that_are_named_as_those_of_duckdb_are_columns(tmp_path: Path) -> None:
    named = pa.table({"n": [1, 2], "filename": ["a", "b"], "first_offset": [8, 9], "key": [0, 0]})

    assert run([data_file(CHUNK, rows=2)], tmp_path, named) == [(1, "t-0-8-0", 0), (2, "t-0-8-0", 1)]
    query = duckdb_query([data_file(CHUNK, rows=2)]).replace(data_file(CHUNK).url, str(tmp_path / "0.parquet"))
    assert [row[1:3] for row in duckdb.sql(f"FROM ({query}) ORDER BY n").fetchall()] == [("a", 8), ("b", 9)]


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": list(values)})


def test_a_file_is_named_by_its_url_and_times_are_in_utc() -> None:
    file = data_file(CHUNK)
    assert (file.url, file.kind) == (f"s3://smq/{CHUNK}", "chunk")
    assert file.appended_max is not None and file.appended_max.isoformat() == "1970-01-01T00:00:01+00:00"
    assert file.appended_min is None
    assert [data_file(path).kind for path in (COMPACTED, UPLOAD)] == ["compacted", "upload"]


def test_the_offset_of_a_row_in_a_chunk_follows_from_the_files_first_one(tmp_path: Path) -> None:
    assert run([data_file(CHUNK, first=7)], tmp_path, numbers(1, 2, 3)) == [
        (1, "t-0-8-0", 7),
        (2, "t-0-8-0", 8),
        (3, "t-0-8-0", 9),
    ]


def test_the_query_reads_a_part_of_an_upload(tmp_path: Path) -> None:
    """The rows 1 and 2 belong to one segment, 3 to another one, 0 and 4 to none."""
    files = [data_file(UPLOAD, "t-0-4-1", 10, 2, first_row=1), data_file(UPLOAD, "t-4-8-2", 20, 1, first_row=3)]
    assert run(files, tmp_path, numbers(0, 1, 2, 3, 4)) == [
        (1, "t-0-4-1", 10),
        (2, "t-0-4-1", 11),
        (3, "t-4-8-2", 20),
    ]


def test_rows_of_a_compacted_file_have_their_offsets_beside_those_of_a_chunk(tmp_path: Path) -> None:
    compacted = numbers(3, 1, 2).append_column("_offset", pa.array([2, 0, 1], pa.int64()))
    files = [data_file(COMPACTED), data_file(CHUNK, first=3, rows=1)]
    assert run(files, tmp_path, compacted, numbers(4)) == [
        (1, "t-0-8-0", 0),
        (2, "t-0-8-0", 1),
        (3, "t-0-8-0", 2),
        (4, "t-0-8-0", 3),
    ]


def test_without_files_there_is_no_query() -> None:
    with pytest.raises(InvalidRequest, match="no files yet"):
        duckdb_query([])


def test_a_part_of_an_upload_is_no_dataset() -> None:
    with pytest.raises(InvalidRequest, match="rows from 0 to 1 are not among"):
        data_files([data_file(UPLOAD, first_row=1)]).dataset()


def test_the_folder_is_exact_only_for_chunks() -> None:
    assert data_files([data_file(CHUNK)]).folder_problems() == []
    missing, doubled = data_files([data_file(UPLOAD), data_file(COMPACTED)]).folder_problems()
    assert missing.startswith("3 messages were published by reference") and "twice" in doubled
    assert data_files([]).folder == "s3://smq/default/t/uid"


def test_tools_get_the_endpoint_and_whether_requests_are_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    options = data_files([]).storage_options()
    assert options["aws_endpoint_url"] == "http://127.0.0.1:8333"
    assert options["aws_allow_http"] == options["aws_skip_signature"] == "true"
    assert "ENDPOINT '127.0.0.1:8333', URL_STYLE 'path', USE_SSL false" in duckdb_settings(
        "http://127.0.0.1:8333", False
    )
    assert options["aws_endpoint_url_s3"] == "http://127.0.0.1:8333", "a variable for S3 does not replace it"
    signed = duckdb_settings(None, True, "eu-north-1")
    assert "REGION 'eu-north-1'" in signed
    assert "credential_chain" in signed and "ENDPOINT" not in signed
