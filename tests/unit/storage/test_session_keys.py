"""Temporary keys of the filer: what is requested of STS, and what its refusals say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from smq_core.errors import SmqError, StoreDenied, StoreUnavailable, StoreUnsupported
from smq_storage.object_store.presigned.connections import Answer, Connections
from smq_storage.object_store.presigned.session_keys import SessionRequest
from smq_storage.object_store.presigned.urls import SigningKey, signed_headers
from smq_storage.object_store.store import Store, open_store

HOUR = timedelta(hours=1)
FOLDERS = ("root/default/t/u/", "root/_uploads/u/")
FILES = ("root/default/t/_current.json",)


def request(role: str = "own") -> SessionRequest:
    return SessionRequest(role=role, name="smq-u", bucket="smq", folders=FOLDERS, files=FILES, lifetime=HOUR)


def test_keys_read_and_list_the_folders_of_the_request_only() -> None:
    read, listed = json.loads(request().policy())["Statement"]
    objects = ("default/t/u/*", "_uploads/u/*", "default/t/_current.json")
    resources = [f"arn:aws:s3:::smq/root/{it}" for it in objects]
    assert read == {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": resources}
    prefixes = {"StringLike": {"s3:prefix": ["root/default/t/u/*", "root/_uploads/u/*"]}}
    assert listed == {
        **{"Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": ["arn:aws:s3:::smq"]},
        "Condition": prefixes,
    }


def test_a_role_is_named_unless_it_is_the_leaders_own() -> None:
    assert "RoleArn" not in request().form()
    assert request("arn:aws:iam::1:role/r").form()["RoleArn"] == "arn:aws:iam::1:role/r"
    assert request().form()["DurationSeconds"] == "3600"


def test_a_request_is_signed_as_aws_says() -> None:
    """The key, the time and the scope of AWS's test suite of signatures (`post-x-www-form-urlencoded`)."""
    key = SigningKey("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
    headers = signed_headers(
        "https://example.amazonaws.com/",
        {"content-type": "application/x-www-form-urlencoded"},
        b"Param1=value1",
        key,
        "us-east-1",
        "service",
        now=datetime(2015, 8, 30, 12, 36, tzinfo=UTC),
    )
    assert headers["authorization"].endswith("ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a")
    assert "x-amz-security-token" in signed_headers(
        "https://sts", {}, b"", SigningKey("a", "b", "token"), "r", "sts", now=datetime.now(UTC)
    )


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, bytes]]]:
    """What STS answers."""
    given: list[tuple[int, bytes]] = []

    def send(connections: Connections, method: str, url: str, headers: object, body: bytes | None = None) -> Answer:
        return Answer(given[0][0], None, given[0][1])  # type: ignore[arg-type]

    monkeypatch.setattr(Connections, "send", send)
    yield given


def keys_of(store: Store) -> object:
    return store.session_keys("own", "smq-u", ["default/t/u"], ["default/t/_current.json"], HOUR)


@pytest.mark.parametrize(
    ("status", "body", "error", "words"),
    [
        (403, b"<Error><Code>AccessDenied</Code></Error>", StoreDenied, r"AccessDenied.*--filer-session-role"),
        (400, b"", StoreDenied, "status 400"),
        (200, b"<html>", StoreDenied, "status 200"),
        (503, b"", StoreUnavailable, "status 503"),
    ],
)
def test_a_denial_says_what_to_set(
    answers: list[tuple[int, bytes]], status: int, body: bytes, error: type[SmqError], words: str
) -> None:
    answers.append((status, body))
    store = open_store("s3://smq/root", endpoint="http://filer", access_key="a", secret_key="b")
    with pytest.raises(error, match=words):
        keys_of(store)


def test_without_a_key_nothing_is_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    for store in (open_store("memory://"), open_store("s3://smq", endpoint="http://filer")):
        with pytest.raises(StoreUnsupported):
            keys_of(store)
