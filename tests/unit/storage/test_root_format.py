"""A root is written in one format; one of another format is refused, and left as it is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from smq_core.errors import StoreUnsupported
from smq_storage.catalog import paths
from smq_storage.catalog.root_format import ROOT_FORMAT, RootFormat, ensure_root_format
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.json_documents import read_document
from smq_storage.object_store.store import Store, open_store

RETRY_POLICY = RetryPolicy(2.0)


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


def version_of(store: Store) -> int | None:
    found = read_document(store, paths.ROOT_FORMAT, RootFormat)
    return found[0].version if found is not None else None


def test_a_new_root_gets_the_format_once(store: Store) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: ensure_root_format(store, RETRY_POLICY), range(4)))
    before = store.get(paths.ROOT_FORMAT).etag
    ensure_root_format(store, RETRY_POLICY)
    assert version_of(store) == ROOT_FORMAT
    assert store.get(paths.ROOT_FORMAT).etag == before


def test_a_root_with_topics_of_this_format_keeps_its_document(store: Store) -> None:
    store.put("default/flights/_current.json", b"{}")
    ensure_root_format(store, RETRY_POLICY)
    assert version_of(store) == ROOT_FORMAT


def test_a_root_of_format_1_is_refused_and_left_as_it_is(store: Store) -> None:
    store.put("default/flights/current.json", b"{}")
    with pytest.raises(StoreUnsupported, match=r"format 1 \(it has default/flights/current\.json\).*Use an empty root"):
        ensure_root_format(store, RETRY_POLICY)
    assert [it.path for it in store.list("")] == ["default/flights/current.json"]


def test_a_root_of_a_later_format_is_refused(store: Store) -> None:
    store.put(paths.ROOT_FORMAT, b'{"version": 3}')
    with pytest.raises(StoreUnsupported, match=r"topics in format 3, and this version reads and writes format 2 only"):
        ensure_root_format(store, RETRY_POLICY)
