"""Tools that read Parquet get each message of a topic once: published, by reference, and after compaction."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import smq
from smq.data_files import duckdb_query
from support.doc_blocks import check_outputs, console_blocks, fenced, paste
from support.processes.cli import CommandResult, environment
from support.processes.cli import smq as run_smq
from support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow]

BLOCKS = fenced("docs/files.md", "python")
SPEC = """
apiVersion: seaweedmq.io/v1alpha1
kind: Topic
metadata: {name: flights}
spec:
  partitions: 16
  key: carrier
  schema: [{name: carrier, type: string}, {name: dep_delay, type: float64, nullable: true}]
  segments: {min: 1, max: 1}
  flush: {interval: 1s}
"""
CARRIERS = ("UA", "AA", "DL")
ROWS = 300


def rows(first: int) -> pa.Table:
    return pa.table(
        {
            "carrier": [CARRIERS[n % len(CARRIERS)] for n in range(ROWS)],
            "dep_delay": pa.array(range(first, first + ROWS), pa.float64()),
        }
    )


@pytest.fixture(scope="module")
def flights(dev: object, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The leader. The topic flights has 300 messages in chunks, compacted, and 300 in an upload."""
    leader: str = dev.leader  # type: ignore[attr-defined]
    folder = tmp_path_factory.mktemp("flights")
    pq.write_table(rows(0), folder / "sent.parquet")
    pq.write_table(rows(ROWS), folder / "referenced.parquet")
    command(leader, "apply", "-f", "-", stdin=SPEC)
    for part in range(3):  # three flushes, so that there is something to merge
        pq.write_table(rows(0).slice(part * 100, 100), folder / "part.parquet")
        command(leader, "publish", "flights", "--from", str(folder / "part.parquet"))
        eventually(lambda part=part: listed(leader, "flights") == (part + 1) * 100, what="the messages are in files")
    command(leader, "segment", "roll", "flights-0-16")
    with smq.connect(leader, timeout=60) as client:
        eventually(lambda: any(done.switched for done in client.compact("flights")), what="the segment is compacted")
    command(leader, "publish", "flights", "--by-reference", str(folder / "referenced.parquet"))
    eventually(lambda: listed(leader, "flights") == 2 * ROWS, what="the upload is listed")
    return leader


def command(leader: str, *arguments: str, stdin: str = "") -> CommandResult:
    ran = run_smq(*arguments, leader=leader, stdin=stdin)
    assert ran.code == 0, ran
    return ran


def listed(leader: str, topic: str) -> int:
    return sum(file["rows"] for file in json.loads(command(leader, "files", topic, "-o", "json").out))


def test_each_kind_of_file_is_listed_with_its_rows(flights: str) -> None:
    found = json.loads(command(flights, "files", "flights", "-o", "json").out)
    counts = {kind: sum(f["rows"] for f in found if f["kind"] == kind) for kind in ("chunk", "compacted", "upload")}
    assert counts == {"chunk": 0, "compacted": ROWS, "upload": ROWS}
    table = command(flights, "files", "flights")
    assert table.column("KIND") == [f["kind"] for f in found] and "600 messages in 2 files" in table.err
    paths = command(flights, "files", "flights", "-o", "paths")
    assert paths.lines == [f["url"] for f in found] and "-o duckdb reads just these" in paths.err


def test_the_commands_of_the_page_run(flights: str, tmp_path: Path) -> None:
    listing, to_duckdb = console_blocks("docs/files.md")
    assert [command for command, _ in to_duckdb] == ["smq files flights -o duckdb | duckdb"]  # it is not installed here
    check_outputs(listing, paste([command for command, _ in listing], tmp_path, environment(flights)))


def test_old_files_are_left_out(flights: str) -> None:
    assert command(flights, "files", "flights", "--since", "2099-01-01T00:00Z", "-o", "paths").out == ""
    assert len(command(flights, "files", "flights", "--since", "1h", "-o", "paths").lines) == 2
    assert run_smq("files", "flights", "--since", "soon", leader=flights).code == 1


def test_the_folder_warns_of_what_a_glob_does_not_see(flights: str) -> None:
    ran = command(flights, "files", "flights", "-o", "folder")
    assert ran.out.startswith("s3://smq/default/flights/")
    assert "300 messages were published by reference" in ran.err and "twice" in ran.err


def test_the_query_returns_each_message_once_with_its_place(flights: str, tmp_path: Path) -> None:
    """On copies of the files, because DuckDB would have to download its extension for S3."""
    with smq.connect(flights, timeout=60) as client:
        files = client.files("flights")
    query = duckdb_query(files)
    assert query in command(flights, "files", "flights", "-o", "duckdb").out
    for number, url in enumerate(files.urls):
        copy = tmp_path / f"{number}.parquet"
        with files.filesystem().open_input_file(url.removeprefix("s3://")) as source:
            copy.write_bytes(source.read())
        query = query.replace(url, str(copy))
    found = duckdb.sql(query).to_arrow_table()
    assert sorted(found.column("dep_delay").to_pylist()) == [float(n) for n in range(2 * ROWS)]
    places = list(zip(found.column("_segment").to_pylist(), found.column("_offset").to_pylist(), strict=True))
    assert sorted(places) == sorted((f"flights-0-16-{s}", n) for s in (0, 1) for n in range(ROWS))


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_example_of_each_tool_runs(flights: str, tmp_path: Path, number: int) -> None:
    program = tmp_path / "example.py"
    program.write_text(BLOCKS[number].replace("localhost:7070", flights))
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, env=environment(), check=False, timeout=500
    )
    assert done.returncode == 0, done.stderr
    expected = {0: r"UA.*200", 1: r"^200$", 2: r"^300$", 3: r"UA.*200"}[number]
    assert re.search(expected, done.stdout), done.stdout
