"""What a real SeaweedFS makes of presigned URLs: each creates one file, by one content, within its time."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from smq_core.errors import SmqError, StoreDenied, StoreStateUnknown
from smq_storage.object_store.presigned.puts import put_presigned
from smq_storage.object_store.presigned.urls import PresignedPut, create_only_headers
from smq_storage.object_store.store import ObjectExists, ObjectMissing, Store
from support.fault_injection.store_proxy import StoreFault, StoreProxy
from support.processes.seaweed import Seaweed
from support.waiting import HANG_GUARD

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("no_credentials")]

DATA, OTHER = b"rows" * 1000, b"ROWS" * 1000
Sign = Callable[..., PresignedPut]


@pytest.fixture
def store(guarded: Seaweed, prefix: str) -> Store:
    return guarded.store(prefix)


@pytest.fixture
def sign(store: Store) -> Sign:
    """Signs a PUT of DATA."""

    def made(path: str = "_uploads/u/ä +.parquet", now: datetime | None = None) -> PresignedPut:
        digest = hashlib.sha256(DATA).digest()
        return store.presign_put_new(path, len(DATA), digest, timedelta(minutes=5), now)

    return made


def send(put: PresignedPut, data: bytes = DATA) -> str:
    return put_presigned(put, data, timeout=HANG_GUARD)


def test_a_file_is_written_without_credentials(store: Store, sign: Sign) -> None:
    put = sign()
    etag = put_presigned(put, [DATA[:10], memoryview(DATA)[10:]], timeout=HANG_GUARD)
    found = store.get("_uploads/u/ä +.parquet")
    assert (bytes(found.data), found.etag) == (DATA, etag)


def test_a_used_url_overwrites_nothing(store: Store, sign: Sign) -> None:
    put = sign("x")
    etag = send(put)
    with pytest.raises(ObjectExists, match="PreconditionFailed"):
        send(put)
    without = {name: value for name, value in put.headers.items() if name != "if-none-match"}
    for headers in (without, {**without, "if-none-match": '"other"'}, {**without, "if-match": etag}):
        with pytest.raises(StoreDenied):
            send(replace(put, headers=headers))
    assert store.get("x").etag == etag


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("another_length", StoreDenied),
        ("another_content", StoreStateUnknown),
        ("another_checksum", StoreDenied),
        ("no_checksum", StoreDenied),
        ("another_name", StoreDenied),
        ("a_longer_life", StoreDenied),
    ],
)
def test_a_url_is_good_for_nothing_else(store: Store, sign: Sign, name: str, error: type[SmqError]) -> None:
    put, data = sign("x"), DATA
    if name == "another_length":
        data = DATA + b"."
    elif name == "another_content":
        data = OTHER
    elif name == "another_checksum":
        put, data = replace(put, headers=put.headers | create_only_headers(len(OTHER), b"\1" * 32)), OTHER
    elif name == "no_checksum":
        put = replace(put, headers={"if-none-match": "*"})
    elif name == "another_name":
        put = replace(put, url=put.url.replace("/x?", "/y?"))
    else:
        put = replace(put, url=put.url.replace("X-Amz-Expires=300", "X-Amz-Expires=3000"))
    with pytest.raises(error) as raised:
        send(put, data)
    assert "X-Amz" not in raised.value.message, "a log must not show the signature"
    for path in ("x", "y"):
        with pytest.raises(ObjectMissing):
            store.head(path)


def test_an_expired_url_says_when_it_was_signed(store: Store, sign: Sign) -> None:
    put = sign("x", datetime.now(UTC) - timedelta(hours=1))
    with pytest.raises(StoreDenied, match=r"/x has expired: it was signed at \d+T\d+Z for 300 seconds.*clocks"):
        send(put)
    with pytest.raises(ObjectMissing):
        store.head("x")


def test_a_url_of_an_unknown_key_names_what_to_check(guarded: Seaweed, prefix: str) -> None:
    nobody = replace(guarded.settings(prefix), access_key="nobody").open()
    put = nobody.presign_put_new("x", len(DATA), hashlib.sha256(DATA).digest(), timedelta(minutes=5))
    with pytest.raises(StoreDenied, match=r"InvalidAccessKeyId.*the leader's key"):
        send(put)


def test_an_answer_that_is_lost_is_no_clear_answer(guarded: Seaweed, prefix: str) -> None:
    with StoreProxy(guarded.endpoint) as proxy:
        store = replace(guarded.settings(prefix), endpoint=proxy.endpoint).open()
        put = store.presign_put_new("x", len(DATA), hashlib.sha256(DATA).digest(), timedelta(minutes=5))
        for fault in (StoreFault.ERROR_500, StoreFault.DROP_BEFORE, StoreFault.DROP_AFTER):
            proxy.add(fault)
            with pytest.raises(StoreStateUnknown) as raised:
                send(put)
            assert "X-Amz" not in raised.value.message
        with pytest.raises(ObjectExists):
            send(put)


def test_an_absent_store_is_named_without_the_signature(sign: Sign) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        absent = f"http://127.0.0.1:{unused.getsockname()[1]}/x"
        put = sign()
        with pytest.raises(StoreStateUnknown, match=absent) as raised:
            send(replace(put, url=f"{absent}?{put.url.partition('?')[2]}"))
    assert "X-Amz" not in raised.value.message
