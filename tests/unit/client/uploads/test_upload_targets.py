"""Uploads by URLs of the leader: what it signs, under which name, and what is written with the URL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from smq.producing.uploads import upload_targets
from smq.producing.uploads.upload_targets import StoredFile, open_upload_target, open_value_store
from smq.transport.dialer import DIRECT
from smq_proto.v1 import topics_pb2
from smq_storage.catalog import paths
from smq_storage.object_store.presigned.urls import PresignedPut
from smq_storage.object_store.request_bodies import size_and_sha256

DATA = b"large"


@dataclass
class SignedTopic:
    """The view of a topic whose leader signs uploads. It names them by the number of the request."""

    signs_uploads = True
    dialer = DIRECT
    requests: list[topics_pb2.SignUploadsRequest] = field(default_factory=list)
    written: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    """By URL: what was written, and the timeout."""

    @property
    def store(self) -> SignedTopic:
        return self

    def sign_uploads(self, request: topics_pb2.SignUploadsRequest) -> topics_pb2.SignUploadsReply:
        self.requests.append(request)
        (file,) = request.files
        name = file.large_value or f"{len(self.requests)}.parquet"
        upload = topics_pb2.SignUploadsReply.Upload(name=name, url=f"http://filer/{name}", headers={"a": "b"})
        return topics_pb2.SignUploadsReply(uploads=[upload])

    def put(self, put: PresignedPut, data: bytes, *, timeout: float, proxy: str | None) -> str:
        assert put.headers == {"a": "b"}
        self.written[put.url] = (data, timeout)
        return "etag"


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    made = SignedTopic()
    monkeypatch.setattr(upload_targets, "put_presigned", made.put)
    yield made


def test_an_upload_gets_its_name_from_the_leader(topic: Any) -> None:
    target = open_upload_target(topic, "p", 3)
    assert target.create(2, DATA) == StoredFile("1.parquet", "etag")
    (request,) = topic.requests
    assert (request.producer, request.epoch, request.attempt) == ("p", 3, 2)
    assert [(it.size, it.sha256, it.large_value) for it in request.files] == [(*size_and_sha256(DATA), "")]
    assert topic.written == {"http://filer/1.parquet": (DATA, upload_targets.UPLOAD_TIMEOUT_SECONDS)}


@pytest.mark.parametrize(("timeout", "used"), [(1.0, upload_targets.UPLOAD_TIMEOUT_SECONDS), (600.0, 600.0)])
def test_a_large_value_keeps_the_name_that_its_message_has(topic: Any, timeout: float, used: float) -> None:
    values = open_value_store(topic, "p", 3, timeout)
    name = paths.large_value_name("p", 3, "n0nce")
    assert values.put_new(paths.large_value("uid", name), DATA) == "etag"
    ((file,),) = (it.files for it in topic.requests)
    assert (file.size, file.sha256, file.large_value) == (*size_and_sha256(DATA), name)
    assert topic.written == {f"http://filer/{name}": (DATA, used)}
