"""Every answer that a conditional write can get, from a store that follows a script."""

import itertools
from collections.abc import Callable

import pytest

from smq_core.errors import StoreUnavailable
from smq_storage.conditional import Found, Patience, Taken, Written, create, replace
from smq_storage.store import ObjectMissing, Store, StoreDenied, open_store

PATH = "x"


class Scripted(Store):
    """A memory store whose writes go wrong in the given ways, one after the other, then right.

    ``lost``: applied, no answer. ``fails``: not applied, no answer. ``late``: no answer, applied at the next write.
    ``409``: not applied, refused as if another were there. ``denied``: not applied, 403.
    """

    def __init__(self, *script: str) -> None:
        real = open_store("memory://")
        super().__init__(real.url, real.url, real._writer, real._reader)
        self.script = list(script)
        self.writes: list[bytes] = []
        self.late: list[Callable[[], str]] = []
        self.unreadable = 0

    def put_new(self, path: str, data) -> str:
        return self._write(data, lambda: super(Scripted, self).put_new(path, data))

    def put_if(self, path: str, data, etag: str) -> str:
        return self._write(data, lambda: super(Scripted, self).put_if(path, data, etag))

    def get(self, path: str):
        if self.unreadable:
            self.unreadable -= 1
            raise StoreUnavailable("no answer")
        return super().get(path)

    def _write(self, data, apply: Callable[[], str]) -> str:
        self.writes.append(bytes(data))
        while self.late:
            self.late.pop()()
        fault = self.script.pop(0) if self.script else "right"
        if fault == "right":
            return apply()
        if fault == "lost":
            apply()
        if fault == "late":
            self.late.append(apply)
        if fault == "denied":
            raise StoreDenied("403")
        if fault == "409":
            from smq_storage.store import AlreadyThere

            raise AlreadyThere("409")
        raise StoreUnavailable("no answer")


class Clock:
    """Time that passes only by waiting."""

    def __init__(self, seconds: float = 30) -> None:
        self.now = 0.0
        self.patience = Patience(seconds, wait=self.wait, clock=lambda: self.now)

    def wait(self, seconds: float) -> None:
        self.now += seconds


def look(store: Store, path: str) -> Found[bytes]:
    found = store.get(path)
    return Found(bytes(found.data), found.etag)


def make(store: Store, body: bytes = b"mine", clock: Clock | None = None):
    patience = (clock or Clock()).patience
    return create(store, PATH, body, look=look, is_mine=lambda it: it == body, patience=patience)


def swap(store: Store, etag: str, body: bytes = b"mine", clock: Clock | None = None):
    patience = (clock or Clock()).patience
    return replace(store, PATH, body, etag, look=look, is_mine=lambda it: it == body, patience=patience)


SCRIPTS = [s for n in range(4) for s in itertools.product(["lost", "fails", "late", "409"], repeat=n)]


@pytest.mark.parametrize("script", SCRIPTS, ids="-".join)
def test_a_lone_creator_always_succeeds(script) -> None:
    store = Scripted(*script)
    outcome = make(store)
    assert outcome == Written(store.get(PATH).etag)
    assert bytes(store.get(PATH).data) == b"mine"


@pytest.mark.parametrize("script", SCRIPTS, ids="-".join)
def test_a_lone_swapper_always_succeeds(script) -> None:
    store = Scripted()
    etag = store.put(PATH, b"before")
    store.script = list(script)
    assert swap(store, etag) == Written(store.get(PATH).etag)
    assert bytes(store.get(PATH).data) == b"mine"


@pytest.mark.parametrize("script", SCRIPTS, ids="-".join)
def test_a_creator_that_comes_second_learns_what_is_there(script) -> None:
    store = Scripted()
    etag = store.put(PATH, b"another's")
    store.script = [fault for fault in script if fault != "lost" and fault != "late"]
    assert make(store) == Taken(b"another's", etag)
    assert bytes(store.get(PATH).data) == b"another's"


def test_a_swapper_that_comes_second_learns_what_is_there() -> None:
    store = Scripted("fails")
    before = store.put(PATH, b"before")
    after = store.put(PATH, b"another's")
    assert swap(store, before) == Taken(b"another's", after)


def test_a_write_that_was_applied_without_an_answer_is_not_sent_again() -> None:
    store = Scripted("lost")
    make(store)
    assert len(store.writes) == 1


def test_a_repeated_write_sends_the_same_bytes() -> None:
    store = Scripted("fails", "409")
    make(store)
    assert store.writes == [b"mine"] * 3


def test_an_object_that_cannot_be_read_back_is_tried_again() -> None:
    store = Scripted("lost")
    store.unreadable = 2
    assert isinstance(make(store), Written)


def test_patience_ends_with_state_unknown() -> None:
    store, clock = Scripted(*["fails"] * 100), Clock(5)
    with pytest.raises(StoreUnavailable, match="state unknown"):
        make(store, clock=clock)
    assert 4 < clock.now <= 5
    assert 5 < len(store.writes) < 20  # it neither hammers nor sleeps through


def test_patience_ends_with_state_unknown_when_nothing_can_be_read() -> None:
    store, clock = Scripted("lost"), Clock(5)
    store.unreadable = 1000
    with pytest.raises(StoreUnavailable, match="state unknown"):
        make(store, clock=clock)
    assert len(store.script) == 0


def test_a_wait_that_returns_true_ends_the_patience() -> None:
    store = Scripted(*["fails"] * 100)
    patience = Patience(1000, wait=lambda _: True, clock=lambda: 0.0)
    with pytest.raises(StoreUnavailable, match="state unknown"):
        create(store, PATH, b"mine", look=look, is_mine=lambda it: it == b"mine", patience=patience)
    assert len(store.writes) == 1


def test_refused_credentials_are_told_at_once() -> None:
    store, clock = Scripted("denied"), Clock()
    with pytest.raises(StoreDenied):
        make(store, clock=clock)
    assert clock.now == 0
    assert len(store.writes) == 1


def test_refused_credentials_are_told_at_once_when_nothing_can_be_read_either() -> None:
    store, clock = Scripted("denied"), Clock()
    store.unreadable = 1
    with pytest.raises(StoreDenied):
        make(store, clock=clock)
    assert clock.now == 0


def test_refused_credentials_after_an_unclear_attempt_leave_the_state_unknown() -> None:
    store = Scripted("fails", *["denied"] * 100)
    with pytest.raises(StoreUnavailable, match="state unknown"):
        make(store, clock=Clock(2))


def test_a_refusal_of_a_write_that_was_applied_before_is_a_success() -> None:
    store = Scripted("late", "denied")
    assert isinstance(make(store), Written)


def test_a_swap_of_a_deleted_object_says_that_it_is_missing() -> None:
    store = Scripted()
    etag = store.put(PATH, b"before")
    store.delete(PATH)
    with pytest.raises(ObjectMissing):
        swap(store, etag)
