"""S3A gets the address and the credentials of one bucket, and of no other."""

from __future__ import annotations

import pytest

from pyspark_smq.errors import SparkNotSupported
from pyspark_smq.table.s3a import (
    ANONYMOUS,
    SIMPLE,
    TEMPORARY,
    bucket_settings,
    clash_of,
    hadoop_configuration,
    s3a_root,
)
from smq_core.errors import InvalidRequest
from smq_storage.object_store.store import StoreSettings

BUCKET = "fs.s3a.bucket.smq."
NAMES = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_REGION", "AWS_DEFAULT_REGION")


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def settings(**given: str) -> StoreSettings:
    return StoreSettings(url="s3://smq/a/prefix", **given)  # type: ignore[arg-type]


def test_the_root_is_below_the_prefix() -> None:
    assert s3a_root(settings()) == "s3a://smq/a/prefix"
    assert s3a_root(StoreSettings(url="s3://smq")) == "s3a://smq"
    with pytest.raises(InvalidRequest, match=r'use format\("smq"\)'):
        s3a_root(StoreSettings(url="memory://x"))


def test_a_filer_without_credentials_is_reached_without_a_signature() -> None:
    found = bucket_settings(settings(endpoint="http://127.0.0.1:8333"))
    assert found == {
        f"{BUCKET}endpoint": "http://127.0.0.1:8333",
        f"{BUCKET}endpoint.region": "us-east-1",
        f"{BUCKET}path.style.access": "true",
        f"{BUCKET}connection.ssl.enabled": "false",
        f"{BUCKET}aws.credentials.provider": ANONYMOUS,
    }


def test_credentials_are_those_of_the_bucket() -> None:
    found = bucket_settings(settings(region="eu-north-1", access_key="k", secret_key="s"))
    assert found == {
        f"{BUCKET}endpoint.region": "eu-north-1",
        f"{BUCKET}access.key": "k",
        f"{BUCKET}secret.key": "s",
        f"{BUCKET}aws.credentials.provider": SIMPLE,
    }
    temporary = bucket_settings(settings(access_key="k", secret_key="s", session_token="t"))
    assert temporary[f"{BUCKET}session.token"] == "t"
    assert temporary[f"{BUCKET}aws.credentials.provider"] == TEMPORARY


def test_credentials_of_the_environment_are_left_to_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_REGION", "elsewhere")
    assert bucket_settings(settings(region="eu-west-1")) == {f"{BUCKET}endpoint.region": "eu-west-1"}
    assert bucket_settings(settings()) == {f"{BUCKET}endpoint.region": "us-east-1"}, "as the leader's own store"


@pytest.mark.parametrize(
    ("name", "is_temporary", "words"),
    [
        ("endpoint", False, "one address for each name of a bucket"),
        ("access.key", True, "the first one for each bucket, also when it has expired"),
        ("access.key", False, ""),
        ("path.style.access", True, ""),
    ],
)
def test_an_application_has_one_address_and_no_second_temporary_key(name: str, is_temporary: bool, words: str) -> None:
    clash = clash_of(BUCKET + name, "one", "other", is_temporary=is_temporary)
    assert words in clash and bool(clash) == bool(words)
    assert not clash_of(BUCKET + name, "one", "one", is_temporary=is_temporary)


def test_a_relay_is_the_proxy() -> None:
    found = bucket_settings(settings(endpoint="http://filer:8333", proxy="http://broker:7071"))
    assert (found[f"{BUCKET}proxy.host"], found[f"{BUCKET}proxy.port"]) == ("broker", "7071")


def test_a_remote_session_is_refused() -> None:
    with pytest.raises(SparkNotSupported, match="Spark Connect"):
        hadoop_configuration(object())  # type: ignore[arg-type]
