"""When superseded chunks are deleted, which they are, and what keeps them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from smq_core.file_lists.file_list import FileEntry
from smq_core.file_lists.superseded_rules import CleanupStep, compacted_chunk, next_step, superseded_offsets, why_kept
from smq_core.model.chunk_info import ChunkInfo, Producers, ProducerState
from smq_core.model.entities import SECOND
from smq_core.model.reference import Reference
from smq_core.model.superseded_chunks import SupersededChunks
from smq_core.reading.pins import CLOCK_MARGIN, ReaderPin, StoredPin
from smq_core.replica.producer_map import ProducerMap
from support.data.sealed_topic import sealed_entry

MERGED = FileEntry(
    path="c",
    first=10,
    rows=20,
    bytes=100,
    etag="etag",
    timestamp_min=1,
    timestamp_max=2,
    appended_min=3,
    appended_max=4,
    key_min="a",
    key_max="b",
    schema_version=2,
    large_values=("v1", "v2"),
)
NAMED = SupersededChunks("s.1.json", 5, 5)
GRACE = 100


@pytest.mark.parametrize(
    ("record", "version", "age", "grace", "step"),
    [
        (None, 0, 0, GRACE, CleanupStep.NOTHING),
        (None, 1, 0, GRACE, CleanupStep.RECORD),
        (replace(NAMED, file_list="s.0.json"), 1, GRACE, GRACE, CleanupStep.RECORD),
        (replace(NAMED, file_list="s.0.json", deleted=True), 1, GRACE, GRACE, CleanupStep.RECORD),
        (NAMED, 1, GRACE - 1, GRACE, CleanupStep.WAIT),
        (NAMED, 1, GRACE, GRACE, CleanupStep.DELETE),
        (NAMED, 1, GRACE, None, CleanupStep.NOTHING),
        (None, 1, 0, None, CleanupStep.NOTHING),
        (replace(NAMED, deleted=True), 1, GRACE, GRACE, CleanupStep.NOTHING),
    ],
)
def test_chunks_are_deleted_once_the_named_file_list_was_recorded_for_long_enough(
    record: SupersededChunks | None, version: int, age: int, grace: int | None, step: CleanupStep
) -> None:
    entry = sealed_entry(0, 30, file_list="s.1.json", superseded=record)
    assert next_step(entry, version, age, grace) is step


def test_the_chunks_within_a_merged_file_are_superseded_and_the_first_one_and_the_next_stay() -> None:
    assert superseded_offsets(MERGED, [0, 10, 12, 25, 29, 30, 40, 12]) == [12, 25, 29]


def chunk(first: int, rows: int, **values: object) -> ChunkInfo:
    return replace(ChunkInfo(segment="s", first=first, rows=rows, writer="w", nonce=f"n{first}"), **values)  # type: ignore[arg-type]


def test_chunks_whose_rows_are_in_the_merged_file_are_not_kept() -> None:
    assert why_kept(MERGED, [chunk(10, 5, large_values=("v2",)), chunk(15, 15)]) is None


@pytest.mark.parametrize(
    "info",
    [
        chunk(15, 16),
        chunk(9, 5),
        chunk(15, 0, sealed=True),
        chunk(
            15,
            5,
            reference=Reference(
                upload="u",
                etag="e",
                first_row=0,
                rows=5,
                bytes=1,
                partition_min=0,
                partition_max=0,
                timestamp_min=0,
                timestamp_max=0,
            ),
        ),
        chunk(15, 5, upload="u.parquet"),
        chunk(15, 5, large_values=("v1", "v3")),
    ],
)
def test_a_chunk_that_says_more_than_the_merged_file_keeps_all_of_them(info: ChunkInfo) -> None:
    assert why_kept(MERGED, [chunk(10, 5), info]) is not None


def test_a_compacted_chunk_passes_over_the_merged_rows_and_changes_no_producer() -> None:
    info = compacted_chunk(
        chunk(10, 5, producers={"p": ProducerState(epoch=1, last_sequence=1, recent=(10,))}), MERGED, "c"
    )
    assert (info.first, info.end, info.writer, info.nonce, info.sealed) == (10, 30, "w", "n10", False)
    assert (info.schema_version, info.large_values) == (2, ("v1", "v2"))
    known: Producers = {"q": ProducerState(epoch=1, last_sequence=7, recent=(1,))}
    producers = ProducerMap(known)
    producers.apply_chunk(info)
    assert producers.snapshot() == known


@pytest.mark.parametrize(
    ("created_at", "removed", "problem", "needs"),
    [
        (1000 * SECOND, (), "", True),
        (1000 * SECOND + CLOCK_MARGIN, (), "", True),
        (1001 * SECOND + CLOCK_MARGIN, (), "", False),
        (1000 * SECOND, ((3, 5),), "", False),
        (9000 * SECOND, (), "it cannot be read", True),
    ],
)
def test_a_pin_keeps_superseded_chunks_unless_its_reader_has_read_a_newer_index(
    created_at: int, removed: tuple[tuple[int, int], ...], problem: str, needs: bool
) -> None:
    pin = StoredPin(id="id", pin=ReaderPin("job", 1, removed), etag="etag", renewed_at=created_at, problem=problem)
    assert pin.needs_superseded(4, 1000 * SECOND) is needs
