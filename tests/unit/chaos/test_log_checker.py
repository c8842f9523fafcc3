"""The checker of chaos runs finds each violation. Each test makes files and logs with one thing wrong."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

PATH = Path(__file__).parents[2] / "chaos" / "log_checker.py"
OLD, LEFT, RIGHT = "t-0-64-0", "t-0-32-1", "t-32-64-2"
Log = dict[str, list[str]]


@pytest.fixture(scope="module")
def checker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("chaos_checker", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


class HandmadeRun:
    """A topic that was split once: its chunks (segment, first offset) -> messages, acks and deliveries."""

    def __init__(self) -> None:
        self.chunks = {
            (OLD, 0): ["a 0", "b 0", "a 1"],
            (OLD, 3): ["b 1"],
            (OLD, 4): [],
            (LEFT, 0): ["a 2", "a 3"],
            (RIGHT, 0): ["b 2"],
        }
        self.sealed = {(OLD, 4)}
        self.acked = [
            *(f"a {n} {s} {o}" for n, (s, o) in enumerate([(OLD, 0), (OLD, 2), (LEFT, 0), (LEFT, 1)])),
            *(f"b {n} {s} {o}" for n, (s, o) in enumerate([(OLD, 1), (OLD, 3), (RIGHT, 0)])),
            "end",
        ]
        self.delivered = [
            *(f"{OLD} {o} {m}" for o, m in enumerate(["a 0", "b 0", "a 1", "b 1"])),
            f"{RIGHT} 0 b 2",
            f"{LEFT} 0 a 2",
            f"{LEFT} 1 a 3",
        ]

    def problems(self, checker: ModuleType, folder: Path) -> list[str]:
        root = folder / "topic"
        for (segment, first), messages in self.chunks.items():
            metadata = {b"smq": json.dumps({"sealed": (segment, first) in self.sealed}).encode()}
            values = pa.array([m.encode() for m in messages], pa.binary())
            table = pa.table({"value": values}).replace_schema_metadata(metadata)
            path = root / segment / f"{first:020d}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(table, path)
        (folder / "acked").write_text("\n".join(self.acked) + "\n")
        (folder / "delivered").write_text("\n".join(self.delivered) + "\n")
        files = pafs.LocalFileSystem()
        findings = checker.check_files(files, str(root), [folder / "acked"], [folder / "delivered"])
        found: list[str] = findings.problems
        return found


def test_a_run_without_fault_has_no_problems(checker: ModuleType, tmp_path: Path) -> None:
    assert HandmadeRun().problems(checker, tmp_path) == []


def lost_in_the_log(run: HandmadeRun) -> None:
    run.chunks[LEFT, 0] = ["a 2"]


def lost_to_a_reader(run: HandmadeRun) -> None:
    run.delivered.remove(f"{OLD} 3 b 1")


def doubled_in_the_log(run: HandmadeRun) -> None:
    run.chunks[LEFT, 0] = ["a 1", "a 2", "a 3"]


def doubled_for_a_reader(run: HandmadeRun) -> None:
    run.delivered.append(f"{LEFT} 1 a 3")


def reordered_in_the_log(run: HandmadeRun) -> None:
    run.chunks[LEFT, 0] = ["a 3", "a 2"]


def reordered_over_a_split(run: HandmadeRun) -> None:
    run.chunks[OLD, 0], run.chunks[LEFT, 0] = ["a 0", "b 0", "a 2"], ["a 1", "a 3"]


def reordered_for_a_reader(run: HandmadeRun) -> None:
    run.delivered[-2:] = reversed(run.delivered[-2:])


def hole_in_a_chain(run: HandmadeRun) -> None:
    del run.chunks[OLD, 3]


def chunk_after_the_seal(run: HandmadeRun) -> None:
    run.chunks[OLD, 4] = []
    run.sealed = {(OLD, 3)}


def receipt_for_another_place(run: HandmadeRun) -> None:
    run.acked[0] = f"a 0 {OLD} 1"


def other_bytes_delivered(run: HandmadeRun) -> None:
    run.delivered[0] = f"{OLD} 0 a 9"


def writer_without_an_end(run: HandmadeRun) -> None:
    run.acked.remove("end")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lost_in_the_log, "acked but not in the log: a 3"),
        (lost_to_a_reader, "1 messages were never delivered"),
        (doubled_in_the_log, "1 repeats in all"),
        (doubled_for_a_reader, "was delivered twice"),
        (reordered_in_the_log, "key a: at place 2 comes 3"),
        (reordered_over_a_split, "key a: at place 1 comes 2"),
        (reordered_for_a_reader, "came after 3"),
        (hole_in_a_chain, "the chain before it ends at 3"),
        (chunk_after_the_seal, "comes after the seal"),
        (receipt_for_another_place, "the receipt a 0"),
        (other_bytes_delivered, "the log has ('a', 0) there"),
        (writer_without_an_end, "did not come to its end"),
    ],
)
def test_what_is_wrong_is_found(
    checker: ModuleType, tmp_path: Path, wrong: Callable[[HandmadeRun], None], said: str
) -> None:
    run = HandmadeRun()
    wrong(run)
    assert any(said in problem for problem in run.problems(checker, tmp_path))
