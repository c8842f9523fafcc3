"""The index of sealed segments: pages, idempotent appends, races, removal."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from smq_core.model.entities import Reason, RemovedSegment, SealedSegment
from smq_core.model.keyspace import KeyRange
from smq_core.model.loss import Loss
from smq_core.model.partition_offsets import UNKNOWN_LOSS, PartitionOffsets, SealedPartitions
from smq_storage.catalog import paths, sealed_index
from smq_storage.catalog.sealed_index import PAGE_ENTRIES, IndexPage, SealedRing
from smq_storage.object_store.store import Data, Store, StoredObject, open_store

AT = ("ns/t", "uid")


def entry(number: int) -> SealedSegment:
    return SealedSegment(
        name=f"t-{number}",
        number=number,
        range=KeyRange(0, 8),
        end=100,
        predecessors=(),
        successors=(f"t-{number + 1}",),
        opened_because=Reason.CREATE,
        sealed_because=Reason.SPLIT,
        opened_at=1,
        sealed_at=2,
        bytes=9,
    )


def gone(*numbers: int) -> list[RemovedSegment]:
    return [RemovedSegment(name=f"t-{number}", number=number, end=100, removed_at=5) for number in numbers]


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


def names(store: Store) -> list[str]:
    return [e.name for e in sealed_index.read(store, *AT)]


def test_entries_come_back_in_order_over_several_pages(store: Store) -> None:
    count = 2 * PAGE_ENTRIES + 10
    sealed_index.append(store, *AT, [entry(i) for i in range(PAGE_ENTRIES - 1)])
    sealed_index.append(store, *AT, [entry(i) for i in range(PAGE_ENTRIES - 1, count)])
    assert sealed_index.read(store, *AT) == [entry(i) for i in range(count)]
    assert [o.path for o in store.list(paths.index_folder(*AT))] == [paths.index_page(*AT, i) for i in range(3)]


def sealed_at(end: int, *, lost: Loss | None = None) -> SealedPartitions:
    """A segment over all eight partitions that ended there."""
    return SealedPartitions(range=KeyRange(0, 8), offsets=PartitionOffsets(first=0, ends=(end,) * 8), lost=lost)


def ring(**sealed: SealedPartitions) -> SealedRing:
    return SealedRing(KeyRange(0, 8), {name.replace("_", "-"): it for name, it in sealed.items()})


def test_the_index_says_where_partitions_end_also_after_retention_and_over_pages(store: Store) -> None:
    assert sealed_index.load(store, *AT).partitions is None
    sealed_index.append(store, *AT, [entry(0)], ring=ring(t_0=sealed_at(5)))
    many = [entry(i) for i in range(1, PAGE_ENTRIES + 3)]
    ends = SealedRing(KeyRange(0, 8), {it.name: sealed_at(5 + it.number) for it in many})
    sealed_index.append(store, *AT, many, ring=ends)
    sealed_index.append(store, *AT, many, ring=ends)  # a repeat
    sealed_index.remove(store, *AT, gone(*range(PAGE_ENTRIES + 3)))
    found = sealed_index.load(store, *AT)
    assert not found.entries
    assert found.partitions == PartitionOffsets(first=0, ends=(5 + PAGE_ENTRIES + 2,) * 8)


def test_a_new_page_keeps_the_ends_of_partitions_that_it_does_not_move(store: Store) -> None:
    first = [entry(i) for i in range(PAGE_ENTRIES)]
    sealed_index.append(store, *AT, first, ring=SealedRing(KeyRange(0, 8), {it.name: sealed_at(5) for it in first}))
    half = SealedPartitions(range=KeyRange(0, 4), offsets=PartitionOffsets(first=0, ends=(9,) * 4))
    last = entry(PAGE_ENTRIES)
    sealed_index.append(store, *AT, [last], ring=SealedRing(KeyRange(0, 8), {last.name: half}))
    found = sealed_index.load(store, *AT).partitions
    assert found is not None and found.ends == (9,) * 4 + (5,) * 4


def test_a_loss_that_was_appended_again_counts_once(store: Store) -> None:
    lost = ring(t_0=sealed_at(5, lost=Loss(40, 43)), t_1=sealed_at(5))
    for entries in ([entry(0)], [entry(0)], [entry(0), entry(1)]):
        sealed_index.append(store, *AT, entries, ring=lost)
    found = sealed_index.load(store, *AT).partitions
    assert found is not None and found.jumps == tuple((partition, 3 + UNKNOWN_LOSS) for partition in range(8))


def test_a_page_that_is_exactly_full_is_followed_by_another(store: Store) -> None:
    sealed_index.append(store, *AT, [entry(i) for i in range(PAGE_ENTRIES)])
    sealed_index.append(store, *AT, [entry(PAGE_ENTRIES)])
    assert len(names(store)) == PAGE_ENTRIES + 1


def test_appending_again_changes_nothing(store: Store) -> None:
    many = [entry(i) for i in range(PAGE_ENTRIES + 5)]
    sealed_index.append(store, *AT, many)
    before = [(o.path, o.size) for o in store.list(paths.index_folder(*AT))]
    sealed_index.append(store, *AT, many[:3])
    sealed_index.append(store, *AT, many)
    sealed_index.append(store, *AT, [many[0], many[0]])
    assert [(o.path, o.size) for o in store.list(paths.index_folder(*AT))] == before


def test_an_entry_given_twice_is_in_once(store: Store) -> None:
    sealed_index.append(store, *AT, [entry(1), entry(1)])
    assert names(store) == ["t-1"]


def test_leaders_that_append_at_once_lose_nothing_and_double_nothing(store: Store) -> None:
    def leader(number: int) -> None:
        for i in range(0, 300, 10):
            # each entry is appended by two of them
            sealed_index.append(
                store, *AT, [entry(i + j) for j in range(10) if (i + j) % 4 in (number, (number + 1) % 4)]
            )

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(leader, range(4)))
    assert sorted(names(store)) == sorted(f"t-{i}" for i in range(300))


def test_removal_reaches_every_page_and_new_entries_still_go_to_the_last(store: Store) -> None:
    count = 2 * PAGE_ENTRIES + 10
    sealed_index.append(store, *AT, [entry(i) for i in range(count)])
    sealed_index.remove(store, *AT, gone(*range(PAGE_ENTRIES + 3), 9999))
    assert names(store) == [f"t-{i}" for i in range(PAGE_ENTRIES + 3, count)]
    sealed_index.append(store, *AT, [entry(count)])
    assert names(store)[-1] == f"t-{count}"
    assert len(list(store.list(paths.index_folder(*AT)))) == 3


def test_removal_is_repeatable_and_of_nothing_does_nothing(store: Store) -> None:
    sealed_index.remove(store, *AT, gone(1))
    sealed_index.append(store, *AT, [entry(1), entry(2)])
    sealed_index.remove(store, *AT, gone(1))
    sealed_index.remove(store, *AT, gone(1))
    assert names(store) == ["t-2"]


def test_removal_does_not_lose_what_is_appended_at_the_same_time(store: Store) -> None:
    sealed_index.append(store, *AT, [entry(i) for i in range(50)])

    def add(_: int) -> None:
        for i in range(50, 100):
            sealed_index.append(store, *AT, [entry(i)])

    def take(_: int) -> None:
        for i in range(50):
            sealed_index.remove(store, *AT, gone(i))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda work: work(0), [add, take]))
    assert names(store) == [f"t-{i}" for i in range(50, 100)]


def test_what_was_removed_is_remembered_and_never_comes_back(store: Store) -> None:
    sealed_index.append(store, *AT, [entry(i) for i in range(5)])
    sealed_index.remove(store, *AT, gone(0, 1, 3))
    sealed_index.append(store, *AT, [entry(1), entry(5)])
    found = sealed_index.load(store, *AT)
    assert [e.name for e in found.entries] == ["t-2", "t-4", "t-5"]
    assert found.removed == ((0, 2), (3, 4))
    assert found.pending_deletion == gone(0, 1, 3), "whoever leads next finds whose files are still to be deleted"


def test_what_was_removed_is_remembered_on_its_own_page(store: Store) -> None:
    sealed_index.append(store, *AT, [entry(i) for i in range(PAGE_ENTRIES + 5)])
    sealed_index.remove(store, *AT, gone(PAGE_ENTRIES - 1, PAGE_ENTRIES))
    assert sealed_index.load(store, *AT).removed == ((PAGE_ENTRIES - 1, PAGE_ENTRIES + 1),)
    sealed_index.append(store, *AT, [entry(PAGE_ENTRIES - 1), entry(PAGE_ENTRIES)])
    assert len(names(store)) == PAGE_ENTRIES + 3


def test_segments_without_files_are_remembered_for_their_ends_but_not_all_of_them(store: Store) -> None:
    count = 2 * PAGE_ENTRIES
    for number in range(0, count, 128):
        some = range(number, number + 128)
        sealed_index.append(store, *AT, [entry(i) for i in some])
        sealed_index.remove(store, *AT, gone(*some))
    sealed_index.mark_files_deleted(store, *AT, [f"t-{i}" for i in range(3, count)])
    found = sealed_index.load(store, *AT)
    assert [it.name for it in found.pending_deletion] == ["t-0", "t-1", "t-2"]
    assert len(found.removed_segments) == 3 + sealed_index.MAX_REMOVED_PER_PAGE
    assert found.removed_segments[-1].name == f"t-{count - 1}"
    assert found.removed == ((0, count),)


def test_that_files_are_deleted_is_written_once(store: Store) -> None:
    sealed_index.append(store, *AT, [entry(1)])
    sealed_index.remove(store, *AT, gone(1))
    sealed_index.mark_files_deleted(store, *AT, ["t-1"])
    before = store.get(paths.index_page(*AT, 0)).etag
    sealed_index.mark_files_deleted(store, *AT, ["t-1", "t-2"])
    assert store.get(paths.index_page(*AT, 0)).etag == before
    assert sealed_index.load(store, *AT).pending_deletion == []


def losses(store: Store) -> dict[str, Loss]:
    return {e.name: e.lost for e in sealed_index.read(store, *AT) if e.lost is not None}


def test_a_loss_is_only_raised(store: Store) -> None:
    sealed_index.append(store, *AT, [entry(i) for i in range(PAGE_ENTRIES + 2)])
    last = f"t-{PAGE_ENTRIES + 1}"
    one, other = Loss(100, 130, at_least=True), Loss(100, 101, at_least=True)
    raised = sealed_index.raise_losses(store, *AT, {"t-1": 130, last: 101, "t-3": 100, "t-unknown": 500})
    assert {e.name: e.lost for e in raised} == {"t-1": one, last: other, "t-3": None}
    assert losses(store) == {"t-1": one, last: other}
    (again,) = sealed_index.raise_losses(store, *AT, {"t-1": 120})
    assert again.lost == one, "the entry as it is now"
    assert losses(store)["t-1"] == one


def test_a_loss_that_is_recorded_already_writes_nothing(store: Store) -> None:
    sealed_index.append(store, *AT, [entry(1)])
    sealed_index.raise_losses(store, *AT, {"t-1": 130})
    written = store.get(paths.index_page(*AT, 0))
    sealed_index.raise_losses(store, *AT, {"t-1": 130})
    assert store.get(paths.index_page(*AT, 0)) == written


def test_a_removed_segment_gets_no_loss(store: Store) -> None:
    sealed_index.append(store, *AT, [entry(1), entry(2)])
    sealed_index.remove(store, *AT, gone(1))
    assert sealed_index.raise_losses(store, *AT, {"t-1": 130}) == []
    assert not losses(store) and names(store) == ["t-2"]


def test_leaders_that_raise_and_append_at_once_lose_nothing(store: Store) -> None:
    sealed_index.append(store, *AT, [entry(0), entry(1)])

    def leader(number: int) -> None:
        for i in range(20):
            sealed_index.raise_losses(store, *AT, {"t-0": 101 + 2 * i + number})
            sealed_index.append(store, *AT, [entry(2 + 2 * i + number)])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(leader, range(2)))
    assert len(names(store)) == 42 and losses(store) == {"t-0": Loss(100, 140, at_least=True)}


def file_list_of(store: Store, number: int) -> str:
    return next(e.file_list for e in sealed_index.read(store, *AT) if e.number == number)


def test_a_file_list_is_named_on_any_page_and_the_rest_stays(store: Store) -> None:
    count = 2 * PAGE_ENTRIES + 3
    sealed_index.append(store, *AT, [entry(i) for i in range(count)])
    for number in (0, PAGE_ENTRIES, count - 1):
        assert sealed_index.name_file_list(store, *AT, f"t-{number}", "", "m0")
        assert file_list_of(store, number) == "m0"
    named = [e.number for e in sealed_index.read(store, *AT) if e.file_list]
    assert named == [0, PAGE_ENTRIES, count - 1]
    assert len(names(store)) == count


def test_naming_a_file_list_can_be_repeated(store: Store) -> None:
    sealed_index.append(store, *AT, [entry(1)])
    assert sealed_index.name_file_list(store, *AT, "t-1", "", "m0")
    assert sealed_index.name_file_list(store, *AT, "t-1", "", "m0")


def test_only_the_expected_file_list_is_replaced(store: Store) -> None:
    sealed_index.append(store, *AT, [entry(1)])
    assert not sealed_index.name_file_list(store, *AT, "t-1", "m0", "m1"), "none is named so far"
    assert sealed_index.name_file_list(store, *AT, "t-1", "", "m0")
    assert sealed_index.name_file_list(store, *AT, "t-1", "m0", "m1")
    assert not sealed_index.name_file_list(store, *AT, "t-1", "m0", "m2")
    assert not sealed_index.name_file_list(store, *AT, "t-1", "", "m2")
    assert file_list_of(store, 1) == "m1"


def test_no_file_list_is_named_for_a_removed_segment(store: Store) -> None:
    sealed_index.append(store, *AT, [entry(1), entry(2)])
    sealed_index.remove(store, *AT, gone(1))
    assert not sealed_index.name_file_list(store, *AT, "t-1", "", "m0")
    assert not sealed_index.name_file_list(store, *AT, "t-9", "", "m0")


def test_of_two_that_name_a_file_list_at_once_one_wins(store: Store) -> None:
    sealed_index.append(store, *AT, [entry(i) for i in range(20)])

    def name(writer: str) -> list[bool]:
        return [sealed_index.name_file_list(store, *AT, f"t-{i}", "", f"{writer}{i}") for i in range(20)]

    with ThreadPoolExecutor(2) as pool:
        a, b = pool.map(name, "ab")
    assert all(x != y for x, y in zip(a, b, strict=True))
    assert [e.file_list for e in sealed_index.read(store, *AT)] == [f"{'a' if a[i] else 'b'}{i}" for i in range(20)]


class CountedDecoding:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pages = 0
        sealed_index._decode_page.cache_clear()
        original = sealed_index.from_json

        def counted(kind: type[IndexPage], data: bytes) -> IndexPage:
            self.pages += 1
            return original(kind, data)

        monkeypatch.setattr(sealed_index, "from_json", counted)

    def of(self, call: Callable[[], object]) -> int:
        """How many pages are decoded during the call."""
        before = self.pages
        call()
        return self.pages - before


def test_only_pages_that_have_changed_are_decoded_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic may have had ten thousand segments, and each further one is appended to its last page."""
    sealed_index.append(store, *AT, [entry(i) for i in range(3 * PAGE_ENTRIES + 1)])
    decoding = CountedDecoding(monkeypatch)
    assert decoding.of(lambda: names(store)) == 4
    assert decoding.of(lambda: names(store)) == 0
    sealed_index.append(store, *AT, [entry(3 * PAGE_ENTRIES + 1)])
    assert decoding.of(lambda: names(store)) == 1
    sealed_index.remove(store, *AT, gone(0))
    assert decoding.of(lambda: names(store)) == 1
    assert "t-0" not in names(store)


def test_a_change_is_not_read_back_if_the_store_has_confirmed_it(store: Store) -> None:
    sealed_index.append(store, *AT, [entry(0)])
    counting = CountingStore(store)
    sealed_index.append(counting, *AT, [entry(1)])  # type: ignore[arg-type]
    sealed_index.name_file_list(counting, *AT, "t-1", "", "m")  # type: ignore[arg-type]
    assert counting.reads == 2
    assert [it.file_list for it in sealed_index.read(store, *AT)] == ["", "m"]


def test_a_page_that_another_leader_changes_meanwhile_is_changed_again(store: Store) -> None:
    sealed_index.append(store, *AT, [entry(0)])
    racing = CountingStore(store, before_put=lambda: sealed_index.append(store, *AT, [entry(7)]))
    assert sealed_index.name_file_list(racing, *AT, "t-0", "", "m")  # type: ignore[arg-type]
    racing = CountingStore(store, before_put=lambda: sealed_index.append(store, *AT, [entry(8)]))
    sealed_index.append(racing, *AT, [entry(8), entry(9)])  # type: ignore[arg-type]
    assert [(it.name, it.file_list) for it in sealed_index.read(store, *AT)] == [
        ("t-0", "m"),
        ("t-7", ""),
        ("t-8", ""),
        ("t-9", ""),
    ]


class CountingStore:
    """``before_put`` is called once, before the first write."""

    def __init__(self, store: Store, before_put: Callable[[], None] | None = None) -> None:
        self._store = store
        self._before_put = before_put
        self.reads = 0

    def get(self, path: str) -> StoredObject:
        self.reads += 1
        return self._store.get(path)

    def put_if(self, path: str, data: Data, etag: str) -> str:
        before, self._before_put = self._before_put, None
        if before is not None:
            before()
        return self._store.put_if(path, data, etag)

    def put_new(self, path: str, data: Data) -> str:
        return self._store.put_new(path, data)
