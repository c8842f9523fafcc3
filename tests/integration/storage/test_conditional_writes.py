"""Conditional writes through a broken network, against a real SeaweedFS: one outcome, and it is known."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from smq_core.errors import Conflict, StoreDenied, StoreStateUnknown
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import Layout
from smq_storage.catalog.layouts import put_layout, read_layout
from smq_storage.chunks.chain import ChunkChain, StoredChunk
from smq_storage.chunks.schemas import chunk_schema, message_schema
from smq_storage.object_store.conditional_writes import RetryPolicy, WriteConflict
from smq_storage.object_store.store import Store, open_store
from support.fault_injection.store_proxy import StoreFault, StoreProxy
from support.processes.seaweed import Seaweed
from support.waiting import HANG_GUARD

pytestmark = pytest.mark.integration

SCHEMA = chunk_schema()
BATCH = pa.RecordBatch.from_pylist(
    [{"partition": 0, "timestamp": 1, "key": b"k", "value": b"v", "headers": None}], schema=message_schema()
)
LONG_TIMEOUT = RetryPolicy(20)
UNCLEAR = [
    StoreFault.STORED_BUT_500,
    StoreFault.ERROR_500,
    StoreFault.CONFLICT_409,
    StoreFault.DROP_BEFORE,
    StoreFault.DROP_AFTER,
]


@pytest.fixture
def faulty_prefix_store(faulty: StoreProxy, prefix: str) -> Store:
    """The test's store, seen through the proxy."""
    return open_store(f"s3://smq/{prefix}", endpoint=faulty.endpoint, timeout=10)


def chain(store: Store) -> ChunkChain:
    return ChunkChain(store, "ns/t", "uid", "t-0")


def put(
    store: Store, writer: str, nonce: str = "1", retry_policy: RetryPolicy = LONG_TIMEOUT
) -> ChunkInfo | WriteConflict[ChunkInfo]:
    written = chain(store).put(
        ChunkInfo(segment="t-0", first=0, rows=1, writer=writer, nonce=nonce), [(BATCH, 5)], SCHEMA, retry_policy
    )
    return written.info if isinstance(written, StoredChunk) else written


def layout(writer: str, version: int = 0) -> Layout:
    return Layout(topic="ns/t", uid="uid", partitions=16, version=version, writer=writer)


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("fault", UNCLEAR)
def test_a_chunk_is_mine_after_any_error(
    faulty, faulty_prefix_store: Store, filer_store: Store, fault: StoreFault, times: int
) -> None:
    rule = faulty.add(fault, times=times)
    mine = put(faulty_prefix_store, "me")
    assert isinstance(mine, ChunkInfo)
    assert chain(filer_store).info(0) == mine
    # What was applied the first time must not be sent again; what was not must be.
    assert rule.used == (1 if fault in (StoreFault.STORED_BUT_500, StoreFault.DROP_AFTER) else times)


@pytest.mark.parametrize("fault", UNCLEAR)
def test_a_chunk_that_another_wrote_is_taken_after_any_error(
    faulty, faulty_prefix_store, filer_store, fault: StoreFault
) -> None:
    theirs = put(filer_store, "them")
    faulty.add(fault)
    outcome = put(faulty_prefix_store, "me")
    assert isinstance(outcome, WriteConflict)
    assert outcome.info == theirs == chain(filer_store).info(0)


@pytest.mark.parametrize("fault", UNCLEAR)
def test_a_layout_is_mine_after_any_error(
    faulty, faulty_prefix_store: Store, filer_store: Store, fault: StoreFault
) -> None:
    faulty.add(fault)
    etag = put_layout(faulty_prefix_store, layout("w1"), None, LONG_TIMEOUT)
    faulty.add(fault)
    etag = put_layout(faulty_prefix_store, layout("w2", 1), etag, LONG_TIMEOUT)
    assert read_layout(filer_store, "ns/t", "uid") == (layout("w2", 1), etag)


@pytest.mark.parametrize("fault", UNCLEAR)
def test_a_layout_that_another_changed_is_a_conflict_after_any_error(
    faulty, faulty_prefix_store, filer_store, fault
) -> None:
    etag = put_layout(filer_store, layout("w1"), None)
    put_layout(filer_store, layout("theirs", 1), etag)
    faulty.add(fault)
    with pytest.raises(Conflict):
        put_layout(faulty_prefix_store, layout("mine", 1), etag, LONG_TIMEOUT)
    assert read_layout(filer_store, "ns/t", "uid")[0].writer == "theirs"


def test_a_write_that_lands_after_its_timeout_is_mine(faulty, filer_store: Store, prefix: str) -> None:
    hasty = open_store(f"s3://smq/{prefix}", endpoint=faulty.endpoint, timeout=0.5)
    late = faulty.add(StoreFault.HOLD)
    second = faulty.add(StoreFault.DROP_BEFORE)

    def let_go_after_the_second_attempt(_: float) -> None:
        if second.reached.is_set():
            late.release.set()
            assert late.applied.wait(HANG_GUARD)

    mine = put(hasty, "me", retry_policy=RetryPolicy(HANG_GUARD, wait=let_go_after_the_second_attempt))
    assert isinstance(mine, ChunkInfo)
    assert chain(filer_store).info(0) == mine


def test_a_write_that_lands_late_never_replaces_what_another_wrote(faulty, filer_store: Store, prefix: str) -> None:
    hasty = open_store(f"s3://smq/{prefix}", endpoint=faulty.endpoint, timeout=0.5)
    late = faulty.add(StoreFault.HOLD)
    with pytest.raises(StoreStateUnknown, match="state unknown"):
        put(hasty, "zombie", retry_policy=RetryPolicy(0))
    theirs = put(filer_store, "them")
    late.release.set()
    assert late.applied.wait(HANG_GUARD)
    assert chain(filer_store).info(0) == theirs


def test_a_stale_read_does_not_hide_my_own_chunk(faulty, faulty_prefix_store: Store, filer_store: Store) -> None:
    faulty.add(StoreFault.STORED_BUT_500)
    stale = faulty.add(StoreFault.MISSING_404, method="GET")
    mine = put(faulty_prefix_store, "me")
    assert stale.used == 1
    assert isinstance(mine, ChunkInfo)
    assert chain(filer_store).info(0) == mine


def test_refused_credentials_are_reported_at_once(faulty, faulty_prefix_store: Store, filer_store: Store) -> None:
    rule = faulty.add(StoreFault.FORBIDDEN_403, times=None)
    with pytest.raises(StoreDenied, match="AWS_ACCESS_KEY_ID"):
        put(faulty_prefix_store, "me")
    assert rule.used == 1
    assert chain(filer_store).info(0) is None


@pytest.mark.parametrize(
    "fault", [StoreFault.ERROR_500, StoreFault.DROP_BEFORE, StoreFault.DROP_AFTER, StoreFault.CONFLICT_409]
)
def test_a_store_that_never_answers_leaves_the_state_unknown(
    faulty, faulty_prefix_store: Store, fault: StoreFault
) -> None:
    faulty.add(fault, method=None, times=None)
    with pytest.raises(StoreStateUnknown, match="state unknown"):
        put(faulty_prefix_store, "me", retry_policy=RetryPolicy(0.3))


def race(count: int, attempt: Callable[[int], object]) -> list[object]:
    start = threading.Barrier(count)

    def run(number: int) -> object:
        start.wait()
        return attempt(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


@pytest.mark.parametrize("fault", [None, *UNCLEAR])
def test_of_racing_chunks_one_wins_and_all_agree(faulty, faulty_prefix_store: Store, filer_store: Store, fault) -> None:
    for skip in (0, 2, 4) if fault else ():
        faulty.add(fault, skip=skip)
    outcomes = race(8, lambda number: put(faulty_prefix_store, f"writer-{number}"))
    won = [outcome for outcome in outcomes if isinstance(outcome, ChunkInfo)]
    assert len(won) == 1
    assert chain(filer_store).info(0) == won[0]
    assert all(outcome.info == won[0] for outcome in outcomes if isinstance(outcome, WriteConflict))


@pytest.mark.parametrize("fault", [None, *UNCLEAR])
def test_of_racing_leaders_one_wins_each_version(faulty, faulty_prefix_store: Store, filer_store: Store, fault) -> None:
    etag = put_layout(filer_store, layout("first"), None)
    for skip in (0, 2) if fault else ():
        faulty.add(fault, skip=skip)

    def lead(number: int) -> bool:
        try:
            put_layout(faulty_prefix_store, layout(f"leader-{number}", 1), etag, LONG_TIMEOUT)
        except Conflict:
            return False
        return True

    outcomes = race(6, lead)
    assert outcomes.count(True) == 1
    assert read_layout(filer_store, "ns/t", "uid")[0].writer == f"leader-{outcomes.index(True)}"


def test_a_chunk_outlives_a_crash_of_the_store(seaweed: Seaweed, filer_store: Store) -> None:
    mine = put(filer_store, "me")
    seaweed.kill()
    seaweed.start()
    assert chain(filer_store).info(0) == mine


def test_a_write_waits_for_a_store_that_comes_back(seaweed: Seaweed, filer_store: Store) -> None:
    seaweed.stop()

    def start_it(_: float) -> None:
        seaweed.start()

    assert isinstance(put(filer_store, "me", retry_policy=RetryPolicy(60, wait=start_it)), ChunkInfo)


def test_large_objects_are_one_request(faulty: StoreProxy, faulty_prefix_store: Store, filer_store: Store) -> None:
    body = bytes(40 << 20)
    etag = faulty_prefix_store.put_new("large", body)
    faulty_prefix_store.put_if("large", body[1:], etag)
    faulty_prefix_store.put("large", [body, b"more"])
    assert [method for method, _ in faulty.requests] == ["PUT"] * 3
    assert not any("upload" in path.lower() for _, path in faulty.requests)
    assert filer_store.get("large").data == body + b"more"
