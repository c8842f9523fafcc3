"""What chaos runs read from the filer: every message of the chunks in order, and each fault of a chain."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from support.programs import load_chaos_program

OLD, LEFT, RIGHT = "t-0-64-9", "t-0-32-10", "t-32-64-11"


@pytest.fixture(scope="module")
def reader() -> ModuleType:
    return load_chaos_program("chunk_reader")


class HandmadeTopic:
    """A topic that was split once: its chunks (segment, first offset) -> messages."""

    def __init__(self) -> None:
        self.chunks = {
            (OLD, 0): ["a 1 0", "b 1 0", "a 1 1"],
            (OLD, 3): ["b 1 1"],
            (OLD, 4): [],
            (LEFT, 0): ["a 1 2", "a 1 3"],
            (RIGHT, 0): ["b 1 2"],
        }
        self.sealed = {(OLD, 4)}

    def read(self, reader: ModuleType, folder: Path) -> list[str]:
        root = folder / "topic"
        for (segment, first), messages in self.chunks.items():
            metadata = {b"smq": json.dumps({"sealed": (segment, first) in self.sealed}).encode()}
            values = pa.array([m.encode() for m in messages], pa.binary())
            table = pa.table({"value": values}).replace_schema_metadata(metadata)
            path = root / segment / f"{first:020d}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(table, path)
        reader.write_log(pafs.LocalFileSystem(), str(root), folder / "readers")
        return (folder / "readers" / "chunks.1.log").read_text().splitlines()


def test_segments_are_read_in_the_order_of_their_numbers(reader: ModuleType, tmp_path: Path) -> None:
    assert HandmadeTopic().read(reader, tmp_path) == [
        *(f"got {OLD} {offset} {message}" for offset, message in enumerate(["a 1 0", "b 1 0", "a 1 1", "b 1 1"])),
        *(f"got {LEFT} 0 a 1 2", f"got {LEFT} 1 a 1 3", f"got {RIGHT} 0 b 1 2", "end"),
    ]


def test_a_hole_in_a_chain_is_an_error(reader: ModuleType, tmp_path: Path) -> None:
    topic = HandmadeTopic()
    del topic.chunks[OLD, 3]
    assert any("error" in line and "the chain before it ends at 3" in line for line in topic.read(reader, tmp_path))


def test_a_chunk_after_the_seal_is_an_error(reader: ModuleType, tmp_path: Path) -> None:
    topic = HandmadeTopic()
    topic.sealed = {(OLD, 3)}
    assert any("error" in line and "comes after the seal" in line for line in topic.read(reader, tmp_path))
