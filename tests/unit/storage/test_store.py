"""The store's calls on the in-memory backend, and its settings."""

import pyarrow as pa
import pytest

from smq_core.errors import InvalidRequest
from smq_storage.object_store.store import EtagMismatch, ObjectExists, ObjectMissing, Store, StoreSettings, open_store


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


def test_what_was_put_is_read_back_with_its_etag(store: Store) -> None:
    etag = store.put("a/b", b"content")
    found = store.get("a/b")
    assert (bytes(found.data), found.etag) == (b"content", etag)


def test_arrow_buffers_and_several_buffers_in_a_row_are_taken(store: Store) -> None:
    store.put_new("arrow", pa.py_buffer(b"one"))
    store.put_new("parts", [b"one", memoryview(b"two"), pa.py_buffer(b"three")])
    store.put_new("empty", b"")
    assert bytes(store.get("arrow").data) == b"one"
    assert bytes(store.get("parts").data) == b"onetwothree"
    assert bytes(store.get("empty").data) == b""


def test_reading_is_without_a_copy_into_bytes(store: Store) -> None:
    store.put("a", b"x" * 1000)
    assert isinstance(store.get("a").data, memoryview)


def test_parts_of_an_object(store: Store) -> None:
    store.put("a", b"0123456789")
    assert bytes(store.get_range("a", 2, 5)) == b"234"
    assert (bytes(store.get_tail("a", 3).data), store.get_tail("a", 3).size) == (b"789", 10)
    assert bytes(store.get_tail("a", 1000).data) == b"0123456789"
    assert store.head("a").size == 10


def test_a_part_of_another_version_of_an_object_is_refused(store: Store) -> None:
    etag = store.put("a", b"0123456789")
    assert bytes(store.get_range("a", 2, 5, etag)) == b"234"
    store.put("a", b"0123456789")
    with pytest.raises(EtagMismatch):
        store.get_range("a", 2, 5, etag)


def test_put_new_refuses_an_existing_object_and_keeps_it(store: Store) -> None:
    store.put_new("a", b"first")
    with pytest.raises(ObjectExists):
        store.put_new("a", b"second")
    assert bytes(store.get("a").data) == b"first"


def test_put_if_replaces_only_the_version_it_names(store: Store) -> None:
    old = store.put_new("a", b"1")
    new = store.put_if("a", b"2", old)
    assert new != old
    with pytest.raises(EtagMismatch):
        store.put_if("a", b"3", old)
    assert bytes(store.get("a").data) == b"2"


def test_put_if_does_not_create(store: Store) -> None:
    with pytest.raises(EtagMismatch):
        store.put_if("absent", b"x", '"etag"')
    with pytest.raises(ObjectMissing):
        store.get("absent")


@pytest.mark.parametrize(
    "read",
    [
        lambda s: s.get("absent"),
        lambda s: s.head("absent"),
        lambda s: s.get_tail("absent", 10),
        lambda s: s.get_range("absent", 0, 10),
    ],
)
def test_absent_objects_are_missing(store: Store, read) -> None:
    with pytest.raises(ObjectMissing):
        read(store)


def test_delete_is_repeatable(store: Store) -> None:
    store.put("a", b"x")
    store.delete("a")
    store.delete("a")
    with pytest.raises(ObjectMissing):
        store.get("a")


def test_listing_is_ordered_and_starts_after_a_path(store: Store) -> None:
    for name in ("f/3", "f/1", "f/2", "g/1", "fx"):
        store.put(name, b"12")
    assert [(o.path, o.size) for o in store.list("f")] == [("f/1", 2), ("f/2", 2), ("f/3", 2)]
    assert [o.path for o in store.list("f", start_after="f/1")] == ["f/2", "f/3"]
    assert list(store.list("none")) == []


def test_folders_are_those_directly_below(store: Store) -> None:
    for name in ("a/x/1", "a/y/z/1", "a/file"):
        store.put(name, b"")
    assert store.folders("a") == ["a/x", "a/y"]
    assert store.folders("") == ["a"]


def test_named_memory_is_shared_and_unnamed_is_not() -> None:
    open_store("memory://shared-by-name").put("a", b"x")
    assert bytes(open_store("memory://shared-by-name").get("a").data) == b"x"
    with pytest.raises(ObjectMissing):
        open_store("memory://").get("a")


@pytest.mark.parametrize("url", ["", "smq", "http://host/bucket", "s3://", "file:///tmp"])
def test_urls_that_are_not_understood_are_refused_with_an_example(url: str) -> None:
    with pytest.raises(InvalidRequest, match="s3://bucket"):
        open_store(url)


@pytest.mark.parametrize(
    "where", [{"url": "s3://me:pw-7@bucket/p"}, {"url": "s3://bucket", "endpoint": "http://me:pw-7@filer:8333"}]
)
def test_an_address_with_a_password_is_refused_without_it(where: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead") as caught:
        StoreSettings(**where)  # type: ignore[arg-type]
    assert "pw-7" not in caught.value.message
    assert StoreSettings(url="s3://bucket/a@b").url == "s3://bucket/a@b"


def test_settings_are_handed_on_in_the_environment() -> None:
    settings = StoreSettings(url="s3://smq/root", endpoint="http://filer:8333", region="eu-west-1", timeout=3.5)
    assert settings.to_env() == {
        "SMQ_FILER_URL": "s3://smq/root",
        "SMQ_FILER_ENDPOINT": "http://filer:8333",
        "SMQ_FILER_REGION": "eu-west-1",
        "SMQ_FILER_TIMEOUT": "3.5",
    }


def test_public_options_and_the_text_form_have_no_credentials() -> None:
    settings = StoreSettings(
        url="s3://smq",
        endpoint="http://filer:8333",
        region="r",
        access_key="AKIA-X",
        secret_key="hush",
        session_token="t",
    )
    assert settings.to_public_options() == {"endpoint": "http://filer:8333", "region": "r", "credentials": "required"}
    shown = repr(settings) + repr(settings.open()) + str(settings)
    assert "hush" not in shown and "AKIA-X" not in shown
    assert StoreSettings.from_public_options("s3://smq", settings.to_public_options()).endpoint == "http://filer:8333"
