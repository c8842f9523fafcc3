"""What people and callers are told when the store is away, is another one, or does not want them."""

import socket
import time

import pytest

from smq_core.errors import StoreDenied, StoreUnavailable, StoreUnsupported
from smq_storage.object_store.conformance_probe import check_conformance
from smq_storage.object_store.store import ObjectMissing, Store, open_store
from support.fault_injection.store_proxy import StoreFault, StoreProxy

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("no_credentials")]

CALLS = {
    "get": lambda s: s.get("x"),
    "head": lambda s: s.head("x"),
    "get_tail": lambda s: s.get_tail("x", 10),
    "put": lambda s: s.put("x", b""),
    "put_new": lambda s: s.put_new("x", b""),
    "put_if": lambda s: s.put_if("x", b"", '"e"'),
    "list": lambda s: list(s.list("")),
    "folders": lambda s: s.folders(""),
    "delete": lambda s: s.delete("x"),
    "probe": check_conformance,
}
every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


def quick(call, store: Store, seconds: float) -> float:
    begin = time.monotonic()
    try:
        call(store)
    finally:
        assert time.monotonic() - begin < seconds


@every_call
def test_an_absent_filer_is_reported_quickly_with_its_address(call) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(StoreUnavailable) as caught:
            quick(call, open_store("s3://smq", endpoint=endpoint), seconds=60)
    assert endpoint in caught.value.message and caught.value.message.endswith(": connection refused")
    assert not isinstance(caught.value, StoreDenied)


def test_an_unknown_host_is_reported_quickly() -> None:
    with pytest.raises(StoreUnavailable, match=r"no-such-host.*the name of its host is not known$"):
        quick(CALLS["put_new"], open_store("s3://smq", endpoint="http://no-such-host.invalid:1"), seconds=60)


@every_call
def test_a_filer_that_accepts_and_never_answers_is_reported_after_the_timeout(call) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unresponsive:
        store = open_store("s3://smq", endpoint=f"http://127.0.0.1:{unresponsive.getsockname()[1]}", timeout=0.3)
        with pytest.raises(StoreUnavailable, match=r"no answer in time$"):
            quick(call, store, seconds=60)


@every_call
@pytest.mark.parametrize(
    "keys", [{}, {"access_key": "key", "secret_key": "wrong"}, {"access_key": "nobody", "secret_key": "x"}]
)
def test_wrong_credentials_are_reported_quickly_with_what_to_set(guarded, call, keys: dict[str, str]) -> None:
    with pytest.raises(StoreDenied, match="AWS_ACCESS_KEY_ID") as caught:
        quick(call, open_store("s3://smq", endpoint=guarded.endpoint, **keys), seconds=60)
    assert "secret" not in caught.value.message
    assert not caught.value.retry


def test_right_credentials_work_from_arguments_and_from_the_environment(guarded, prefix: str, monkeypatch) -> None:
    guarded.store(prefix).put("x", b"1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert bytes(open_store(f"s3://smq/{prefix}", endpoint=guarded.endpoint).get("x").data) == b"1"
    assert [o.path for o in guarded.store(prefix).list("")] == ["x"]


def test_an_absent_bucket_is_not_an_absent_object(seaweed) -> None:
    store = open_store("s3://no-such-bucket", endpoint=seaweed.endpoint)
    with pytest.raises(StoreUnavailable, match="there is no bucket"):
        store.get("x")


def test_reads_survive_short_errors(faulty: StoreProxy, filer_store: Store, prefix: str) -> None:
    filer_store.put("x", b"1")
    store = open_store(f"s3://smq/{prefix}", endpoint=faulty.endpoint)
    for fault in (StoreFault.ERROR_500, StoreFault.DROP_BEFORE):
        faulty.add(fault, method="GET", times=2)
        assert bytes(store.get("x").data) == b"1"


def test_writes_are_sent_once(faulty: StoreProxy, prefix: str) -> None:
    store = open_store(f"s3://smq/{prefix}", endpoint=faulty.endpoint)
    for fault in (StoreFault.ERROR_500, StoreFault.DROP_BEFORE, StoreFault.DROP_AFTER, StoreFault.STORED_BUT_500):
        faulty.requests.clear()
        faulty.add(fault)
        with pytest.raises(StoreUnavailable):
            store.put_new(f"x-{fault.name}", b"1")
        assert faulty.count("PUT") == 1


@pytest.mark.parametrize(("racers", "rounds"), [(2, 10), (6, 1)])
def test_seaweedfs_is_fit_and_nothing_stays(seaweed, filer_store: Store, prefix: str, racers: int, rounds) -> None:
    # Racers that meet wait for each other in steps of a second.
    check_conformance(seaweed.store(prefix, timeout=300), racers=racers, rounds=rounds)
    assert list(filer_store.list("")) == []


@pytest.mark.parametrize("fault", [StoreFault.IGNORE_CONDITIONS, StoreFault.CHECK_THEN_WRITE])
def test_a_store_that_breaks_its_promises_is_unfit(faulty: StoreProxy, filer_store, prefix: str, fault) -> None:
    faulty.add(fault, times=None)
    with pytest.raises(StoreUnsupported, match="If-None-Match"):
        check_conformance(open_store(f"s3://smq/{prefix}", endpoint=faulty.endpoint))
    assert list(filer_store.list("")) == []


def test_the_store_works_on_seaweedfs_as_in_memory(filer_store: Store) -> None:
    filer_store.put("f/b", b"0123456789")
    filer_store.put("f/a", b"")
    filer_store.put("f/sub/c", [b"1", b"2"])
    assert [(o.path, o.size) for o in filer_store.list("f")] == [("f/a", 0), ("f/b", 10), ("f/sub/c", 2)]
    assert [o.path for o in filer_store.list("f", start_after="f/a")] == ["f/b", "f/sub/c"]
    assert filer_store.folders("f") == ["f/sub"]
    assert filer_store.folders("") == ["f"]
    assert bytes(filer_store.get_range("f/b", 2, 5)) == b"234"
    assert bytes(filer_store.get_tail("f/b", 3).data) == b"789"
    assert filer_store.get_tail("f/b", 1000).size == 10
    filer_store.delete("f/b")
    filer_store.delete("f/b")
    with pytest.raises(ObjectMissing):
        filer_store.get_tail("f/b", 10)


def test_listings_longer_than_one_answer_are_complete(filer_store: Store) -> None:
    for number in range(1005):
        filer_store.put(f"many/{number:05d}", b"")
    assert [o.path for o in filer_store.list("many")] == [f"many/{n:05d}" for n in range(1005)]
    assert [o.path for o in filer_store.list("many", "many/01003")] == ["many/01004"]


def test_the_tail_of_an_empty_object_is_empty(filer_store: Store) -> None:
    """S3 answers 416 to the last bytes of nothing, which is no outage."""
    etag = filer_store.put("empty", b"")
    tail = filer_store.get_tail("empty", 100)
    assert (len(tail.data), tail.size, tail.etag) == (0, 0, etag)
