"""Every answer that a conditional write can get, from a store that follows a script."""

import itertools
from collections.abc import Callable

import pytest

from smq_core.errors import StoreDenied, StoreStateUnknown, StoreUnavailable
from smq_storage.object_store.conditional_writes import (
    ReadBackResult,
    RetryPolicy,
    WriteConflict,
    WriteSucceeded,
    create,
    replace,
)
from smq_storage.object_store.store import ObjectMissing, Store, open_store

PATH = "x"


class ScriptedStore(Store):
    """A memory store whose writes go wrong in the given ways, one after the other, then right.

    ``lost``: applied, no answer. ``fails``: not applied, no answer. ``late``: no answer, applied at the next write.
    ``away``: surely not applied. ``409``: not applied, refused as if another were there. ``denied``: not applied, 403.
    """

    def __init__(self, *script: str) -> None:
        real = open_store("memory://")
        super().__init__(url=real.url, where=real.url, writer=real._writer, reads=real._reads)
        self.script = list(script)
        self.writes: list[bytes] = []
        self.late: list[Callable[[], str]] = []
        self.unreadable = 0

    def put_new(self, path: str, data) -> str:
        return self._write(data, lambda: super(ScriptedStore, self).put_new(path, data))

    def put_if(self, path: str, data, etag: str) -> str:
        return self._write(data, lambda: super(ScriptedStore, self).put_if(path, data, etag))

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
            from smq_storage.object_store.store import ObjectExists

            raise ObjectExists("409")
        if fault == "away":
            raise StoreUnavailable("nothing was sent")
        raise StoreStateUnknown("no answer")


class VirtualClock:
    """Time that passes only by waiting."""

    def __init__(self, seconds: float = 30) -> None:
        self.now = 0.0
        self.retry_policy = RetryPolicy(seconds, wait=self.wait, clock=lambda: self.now)

    def wait(self, seconds: float) -> None:
        self.now += seconds


def read_back(store: Store, path: str) -> ReadBackResult[bytes]:
    found = store.get(path)
    return ReadBackResult(bytes(found.data), found.etag)


def make(store: Store, body: bytes = b"mine", clock: VirtualClock | None = None):
    retry_policy = (clock or VirtualClock()).retry_policy
    return create(store, PATH, body, read_back=read_back, is_mine=lambda it: it == body, retry_policy=retry_policy)


def swap(store: Store, etag: str, body: bytes = b"mine", clock: VirtualClock | None = None):
    retry_policy = (clock or VirtualClock()).retry_policy
    return replace(
        store, PATH, body, etag, read_back=read_back, is_mine=lambda it: it == body, retry_policy=retry_policy
    )


SCRIPTS = [s for n in range(4) for s in itertools.product(["lost", "fails", "late", "409"], repeat=n)]


@pytest.mark.parametrize("script", SCRIPTS, ids="-".join)
def test_a_lone_creator_always_succeeds(script) -> None:
    store = ScriptedStore(*script)
    outcome = make(store)
    assert outcome == WriteSucceeded(store.get(PATH).etag)
    assert bytes(store.get(PATH).data) == b"mine"


@pytest.mark.parametrize("script", SCRIPTS, ids="-".join)
def test_a_lone_swapper_always_succeeds(script) -> None:
    store = ScriptedStore()
    etag = store.put(PATH, b"before")
    store.script = list(script)
    assert swap(store, etag) == WriteSucceeded(store.get(PATH).etag)
    assert bytes(store.get(PATH).data) == b"mine"


@pytest.mark.parametrize("script", SCRIPTS, ids="-".join)
def test_a_creator_that_comes_second_learns_what_is_there(script) -> None:
    store = ScriptedStore()
    etag = store.put(PATH, b"another's")
    store.script = [fault for fault in script if fault != "lost" and fault != "late"]
    assert make(store) == WriteConflict(b"another's", etag)
    assert bytes(store.get(PATH).data) == b"another's"


def test_a_swapper_that_comes_second_learns_what_is_there() -> None:
    store = ScriptedStore("fails")
    before = store.put(PATH, b"before")
    after = store.put(PATH, b"another's")
    assert swap(store, before) == WriteConflict(b"another's", after)


def test_a_write_that_was_applied_without_an_answer_is_not_sent_again() -> None:
    store = ScriptedStore("lost")
    make(store)
    assert len(store.writes) == 1


def test_a_repeated_write_sends_the_same_bytes() -> None:
    store = ScriptedStore("fails", "409")
    make(store)
    assert store.writes == [b"mine"] * 3


def test_an_object_that_cannot_be_read_back_is_tried_again() -> None:
    store = ScriptedStore("lost")
    store.unreadable = 2
    assert isinstance(make(store), WriteSucceeded)


def test_retries_end_with_state_unknown() -> None:
    store, clock = ScriptedStore(*["fails"] * 100), VirtualClock(5)
    with pytest.raises(StoreStateUnknown, match="state unknown"):
        make(store, clock=clock)
    assert 4 < clock.now <= 5
    assert 5 < len(store.writes) < 20  # it neither hammers nor sleeps through


def test_retries_end_with_state_unknown_when_nothing_can_be_read() -> None:
    store, clock = ScriptedStore("lost"), VirtualClock(5)
    store.unreadable = 1000
    with pytest.raises(StoreStateUnknown, match="state unknown"):
        make(store, clock=clock)
    assert len(store.script) == 0


@pytest.mark.parametrize("fault", ["409", "away"])
def test_a_refused_write_that_cannot_be_read_back_leaves_the_state_unknown(fault: str) -> None:
    store, clock = ScriptedStore(*[fault] * 100), VirtualClock(5)
    store.unreadable = 1000
    with pytest.raises(StoreStateUnknown, match="state unknown"):
        make(store, clock=clock)


@pytest.mark.parametrize("script", [["away"] * 100, ["409"] * 100, ["away", "409"] * 50])
def test_retries_that_all_surely_failed_end_with_failed(script: list[str]) -> None:
    with pytest.raises(StoreUnavailable, match="was not written") as caught:
        make(ScriptedStore(*script), clock=VirtualClock(5))
    assert not isinstance(caught.value, StoreStateUnknown)


def test_one_unclear_attempt_among_failed_ones_leaves_the_state_unknown() -> None:
    with pytest.raises(StoreStateUnknown, match="state unknown"):
        make(ScriptedStore("away", "fails", *["away"] * 100), clock=VirtualClock(5))


def test_a_wait_that_returns_true_ends_the_retries() -> None:
    store = ScriptedStore(*["fails"] * 100)
    retry_policy = RetryPolicy(1000, wait=lambda _: True, clock=lambda: 0.0)
    with pytest.raises(StoreStateUnknown, match="state unknown"):
        create(store, PATH, b"mine", read_back=read_back, is_mine=lambda it: it == b"mine", retry_policy=retry_policy)
    assert len(store.writes) == 1


def test_refused_credentials_are_reported_at_once() -> None:
    store, clock = ScriptedStore("denied"), VirtualClock()
    with pytest.raises(StoreDenied):
        make(store, clock=clock)
    assert clock.now == 0
    assert len(store.writes) == 1


def test_refused_credentials_are_reported_at_once_when_nothing_can_be_read_either() -> None:
    store, clock = ScriptedStore("denied"), VirtualClock()
    store.unreadable = 1
    with pytest.raises(StoreDenied):
        make(store, clock=clock)
    assert clock.now == 0


def test_refused_credentials_after_an_unclear_attempt_leave_the_state_unknown() -> None:
    store = ScriptedStore("fails", *["denied"] * 100)
    with pytest.raises(StoreStateUnknown, match="state unknown"):
        make(store, clock=VirtualClock(2))


def test_a_rejected_repeat_of_an_applied_write_is_a_success() -> None:
    store = ScriptedStore("late", "denied")
    assert isinstance(make(store), WriteSucceeded)


def test_a_swap_of_a_deleted_object_says_that_it_is_missing() -> None:
    store = ScriptedStore()
    etag = store.put(PATH, b"before")
    store.delete(PATH)
    with pytest.raises(ObjectMissing):
        swap(store, etag)
