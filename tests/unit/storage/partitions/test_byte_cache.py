"""A cache is bounded by bytes, and threads that want the same value read it once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from smq_storage.partitions.byte_cache import ByteCache
from support.waiting import HANG_GUARD, eventually


def test_the_least_recently_used_values_go_when_there_are_too_many_bytes() -> None:
    cache: ByteCache[bytes] = ByteCache(10, len)
    for key in "abc":
        cache.get_or_load(key, lambda: b"1234")
        assert cache.get("a") == b"1234"
    assert [key for key in "abc" if cache.get(key)] == ["a", "c"]
    assert cache.bytes == 8


def test_a_value_that_is_too_large_is_kept_until_the_next_one() -> None:
    cache: ByteCache[bytes] = ByteCache(10, len)
    cache.get_or_load("a", lambda: b"1")
    cache.get_or_load("large", lambda: b"1" * 100)
    assert (cache.get("a"), cache.bytes) == (None, 100)
    cache.get_or_load("b", lambda: b"1")
    assert (cache.get("large"), cache.bytes) == (None, 1)


def test_threads_that_want_the_same_value_load_it_once() -> None:
    cache: ByteCache[bytes] = ByteCache(10, len)
    loading, calls = threading.Event(), list[int]()

    def load() -> bytes:
        calls.append(1)
        assert loading.wait(HANG_GUARD)
        return b"1"

    with ThreadPoolExecutor(3) as threads:
        values = [threads.submit(cache.get_or_load, "a", load) for _ in range(3)]
        eventually(lambda: bool(calls), what="one thread loads")
        assert cache.get("a") is None
        loading.set()
        assert [it.result(HANG_GUARD) for it in values] == [b"1"] * 3
    assert len(calls) == 1


def test_an_error_is_not_kept() -> None:
    cache: ByteCache[bytes] = ByteCache(10, len)

    def fail() -> bytes:
        raise OSError

    for _ in range(2):
        with pytest.raises(OSError):
            cache.get_or_load("a", fail)
    assert cache.get_or_load("a", lambda: b"1") == b"1"
