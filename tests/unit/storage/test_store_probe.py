"""Stores that break one promise each, and one that keeps them."""

import threading

import pytest

from smq_core.errors import StoreDenied, StoreUnavailable, StoreUnsupported
from smq_storage.object_store.conformance_probe import check_conformance
from smq_storage.object_store.store import EtagMismatch, ObjectExists, Store, open_store


class MemoryStore(Store):
    def __init__(self) -> None:
        real = open_store("memory://")
        super().__init__(url=real.url, where=real.url, writer=real._writer, reads=real._reads)


class OverwritesOnCreate(MemoryStore):
    def put_new(self, path, data):
        return self.put(path, data)


class OverwritesLateCreate(MemoryStore):
    """Right while nothing is there long enough to be seen, wrong afterwards."""

    seen = False

    def put_new(self, path, data):
        try:
            return super().put_new(path, data)
        except ObjectExists:
            if bytes(data) != b"late":
                raise
            return self.put(path, data)


class IgnoresEtags(MemoryStore):
    def put_if(self, path, data, etag):
        return self.put(path, data)


class IgnoresOldEtags(MemoryStore):
    def put_if(self, path, data, etag):
        try:
            return super().put_if(path, data, etag)
        except EtagMismatch:
            if bytes(data) != b"late":
                raise
            return self.put(path, data)


class RefusesEveryWriter(MemoryStore):
    def put_new(self, path, data):
        if bytes(data) == b"first":
            return super().put_new(path, data)
        raise ObjectExists(path)


class ReportsWrongWinner(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.reported = set()

    def put_new(self, path, data):
        """The winner's bytes are lost: another racer's are kept."""
        with self.lock:
            if path in self.reported:
                raise ObjectExists(path)
            self.reported.add(path)
            return self.put(path, b"something else" if bytes(data) != b"first" else data)


class FailingStore(MemoryStore):
    error: Exception

    def put_new(self, path, data):
        raise self.error


@pytest.mark.parametrize("racers", [2, 16])
def test_a_fit_store_passes_and_nothing_stays(racers: int) -> None:
    store = MemoryStore()
    check_conformance(store, racers=racers)
    assert list(store.list("")) == []


@pytest.mark.parametrize(
    ("store", "what"),
    [
        (OverwritesOnCreate(), "2 of 2 simultaneous creations"),
        (OverwritesLateCreate(), "let a create-only write replace"),
        (IgnoresEtags(), "2 of 2 simultaneous replacements"),
        (IgnoresOldEtags(), "with an old etag"),
        (RefusesEveryWriter(), "0 of 2"),
        (ReportsWrongWinner(), "gave something else"),
    ],
    ids=lambda it: type(it).__name__,
)
def test_an_unfit_store_is_refused_with_what_it_did_and_what_to_do(store: Store, what: str) -> None:
    with pytest.raises(StoreUnsupported, match=what) as caught:
        check_conformance(store)
    assert "recent SeaweedFS" in caught.value.message
    assert list(store.list("")) == []


@pytest.mark.parametrize("error", [StoreDenied("403"), StoreUnavailable("down")])
def test_a_store_that_does_not_answer_is_not_called_unfit(error: Exception) -> None:
    store = FailingStore()
    store.error = error
    with pytest.raises(type(error)) as caught:
        check_conformance(store)
    assert caught.value is error
