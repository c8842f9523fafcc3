"""Signatures of presigned URLs, against AWS's own example and against obstore."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import obstore
import pytest
from obstore.store import S3Store

from smq_core.errors import StoreUnsupported
from smq_storage.object_store.presigned.urls import SigningKey, presign
from smq_storage.object_store.store import StoreSettings, open_store

KEYS = {"access_key": "AKIAIOSFODNN7EXAMPLE", "secret_key": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}
HOUR = timedelta(hours=1)


def query(url: str) -> dict[str, str]:
    return {name: value for name, (value,) in parse_qs(urlsplit(url).query).items()}


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


def test_the_example_in_the_documentation_of_s3() -> None:
    url = "https://examplebucket.s3.amazonaws.com/test.txt"
    now = datetime(2013, 5, 24, tzinfo=UTC)
    signed = presign("GET", url, {}, SigningKey(**KEYS), "us-east-1", now=now, lifetime=timedelta(days=1))
    assert query(signed)["X-Amz-Signature"] == "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"


def test_urls_without_headers_are_those_of_obstore() -> None:
    config = {"region": "r", "access_key_id": "k", "secret_access_key": "s", "session_token": "t/="}
    store = S3Store("smq", prefix="ä b", config=config)  # type: ignore[arg-type]
    theirs = obstore.sign(store, "PUT", "x y+=.parquet", HOUR)
    now = datetime.strptime(query(theirs)["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    own = presign("PUT", theirs.partition("?")[0], {}, SigningKey("k", "s", "t/="), "r", now=now, lifetime=HOUR)
    assert query(own) == query(theirs)


def test_a_url_has_the_address_that_the_store_uses_and_what_the_request_must_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "t")
    put = open_store("s3://smq/root", endpoint="http://filer:8333").presign_put_new("_uploads/u/a", 9, b"\0" * 32, HOUR)
    assert put.url.startswith("http://filer:8333/smq/root/_uploads/u/a?")
    assert put.headers["if-none-match"] == "*" and put.headers["content-length"] == "9"
    found = query(put.url)
    assert found["X-Amz-SignedHeaders"] == "content-length;host;if-none-match;x-amz-checksum-sha256"
    assert (found["X-Amz-Expires"], found["X-Amz-Security-Token"]) == ("3600", "t")
    assert "hush" not in put.url and found["X-Amz-Signature"] not in repr(put)


@pytest.mark.parametrize(
    ("environment", "message"),
    [({}, "are not signed.*write there directly"), ({"AWS_WEB_IDENTITY_TOKEN_FILE": "f"}, "those of a role.*AWS_ACC")],
)
def test_a_store_without_a_key_signs_nothing_and_says_why(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], message: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StoreUnsupported, match=message):
        open_store("s3://smq", endpoint="http://filer:8333").presign_put_new("x", 1, b"\0" * 32, HOUR)


def test_a_store_in_memory_has_no_urls() -> None:
    with pytest.raises(StoreUnsupported, match="no URLs"):
        open_store("memory://").presign_put_new("x", 1, b"\0" * 32, HOUR)


def test_clients_learn_whether_the_store_takes_signed_requests_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert StoreSettings(url="s3://smq").to_public_options() == {}
    assert StoreSettings(url="s3://smq", **KEYS).to_public_options() == {"credentials": "required"}
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "f")
    assert StoreSettings(url="s3://smq").to_public_options() == {"credentials": "required"}
