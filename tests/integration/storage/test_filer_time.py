"""The time that SeaweedFS gives to objects."""

from __future__ import annotations

import time

import pytest

from smq_storage.catalog.filer_time import modified_at_or_none, read_filer_time
from smq_storage.object_store.store import Store
from support.waiting import eventually

pytestmark = pytest.mark.integration


def test_the_filer_s_time_advances_and_is_never_early(filer_store: Store):
    first = read_filer_time(filer_store)
    assert first <= time.time_ns() // 1000, "it is the same machine, and the time is rounded down"
    assert eventually(lambda: read_filer_time(filer_store) > first), "overwriting an object renews its time"


def test_an_object_that_is_missing_has_no_time(filer_store: Store):
    assert modified_at_or_none(filer_store, "missing.json") is None
