"""How a client reads the files of a topic: by itself, or with URLs of the leader."""

from __future__ import annotations

from pathlib import Path

import pytest

from smq.transport.dialer import Dialer
from smq.transport.security.credentials import Credentials
from smq.transport.security.security_files import SecurityFiles, security_files
from smq.transport.topic_store import TopicStore
from smq_core.errors import Unavailable
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1 import topics_pb2
from smq_storage.object_store.presigned.urls import SigningKey
from smq_storage.object_store.store import StoreSettings

GUARDED = {"endpoint": "http://127.0.0.1:1", "credentials": "required"}
KEY = SigningKey("key", "secret")


class Leader:
    """Remembers who requests URLs, and gives none."""

    def __init__(self) -> None:
        self.uids: list[str] = []

    def SignReads(self, request: topics_pb2.SignReadsRequest) -> topics_pb2.SignReadsReply:
        self.uids.append(request.uid)
        raise Unavailable("no leader")

    def ListFiles(self, request: topics_pb2.ListFilesRequest) -> topics_pb2.ListFilesReply:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def files(tmp_path: Path) -> SecurityFiles:
    for name in ("ca.crt", "token"):
        (tmp_path / name).write_text("x")
    found = security_files(ca_file=tmp_path / "ca.crt", token=None, token_file=tmp_path / "token")
    assert found is not None
    return found


def located(uid: str = "u", options: dict[str, str] = GUARDED) -> pb.LocateReply:
    return pb.LocateReply(topic={"name": "a/b", "uid": uid}, store_url="s3://smq", store_options=options)


def requests_urls(
    files: SecurityFiles | None,
    reply: pb.LocateReply,
    *,
    key: SigningKey | None = None,
    settings: StoreSettings | None = None,
) -> bool:
    leader = Leader()
    dialer = Dialer(None, Credentials(files) if files is not None else None)
    store = TopicStore(settings=settings, key=key, dialer=dialer, uploads="auto", leader=leader)
    store.learn(reply)
    for opened in (store.open(), store.open_for_uploads()):
        with pytest.raises(Unavailable):
            opened.get("a/b/u/_layout.json")
    assert len(leader.uids) in (0, 2)
    return bool(leader.uids)


def test_urls_are_for_clients_of_a_secure_release_that_can_sign_nothing(files: SecurityFiles) -> None:
    given = StoreSettings(url="s3://smq", endpoint=GUARDED["endpoint"])
    assert requests_urls(files, located()) and requests_urls(files, located(), settings=given)
    assert not requests_urls(files, located(), key=KEY)
    assert not requests_urls(files, located(), settings=given.signed_with(KEY))
    assert not requests_urls(files, located(options={"endpoint": GUARDED["endpoint"]}))
    assert not requests_urls(None, located()), "an open release is as before"


def test_credentials_of_the_environment_are_used(files: SecurityFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert not requests_urls(files, located())


def test_a_topic_that_was_created_again_has_other_urls(files: SecurityFiles) -> None:
    leader = Leader()
    store = TopicStore(settings=None, key=None, dialer=Dialer(None, Credentials(files)), uploads="auto", leader=leader)
    for uid in ("u", "u", "v"):
        store.learn(located(uid))
        opened = store.open()
        assert opened is store.open()
        with pytest.raises(Unavailable):
            opened.get(f"a/b/{uid}/_layout.json")
    assert leader.uids == ["u", "u", "v"]
