"""SignUploads: which requests get URLs, and for which names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from smq_operator.api.topics import TopicService
from smq_operator.runtime.store_pool import StorePool
from smq_proto.v1 import topics_pb2
from smq_storage.catalog import paths
from smq_storage.object_store.store import Store, open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, FakeServicerContext, LeaderInMemory, RpcAborted, running_leader
from support.virtual_time import virtual_time
from support.waiting import wait_until

TOPIC = "default/t"
FILE = topics_pb2.SignUploadsRequest.File(size=7, sha256=b"\0" * 32)


def guarded() -> Store:
    """Signing sends nothing, so nobody has to listen there."""
    return open_store("s3://smq", endpoint="http://filer:8333", access_key="key", secret_key="secret")


@asynccontextmanager
async def upload_service(store: Store | None = None) -> AsyncIterator[tuple[TopicService, str]]:
    """The service of a leader with one topic, and the topic's uid."""
    own = open_store("memory://")
    fleet, platform = FakeFleet(own), FakePlatform()
    for name in "abc":
        fleet.add(name)
    platform.add_topic(TOPIC)
    leader = LeaderInMemory(platform, fleet, own)
    async with running_leader(leader):
        await wait_until(lambda: TOPIC in leader.topics and leader.topics[TOPIC].layout)
        topic = leader.topics[TOPIC].topic
        assert topic is not None
        yield replace(leader.parts.services.topics, store=StorePool(store or guarded(), leader.pool)), topic.uid


async def sign(service: TopicService, topic_uid: str, **values: object) -> topics_pb2.SignUploadsReply:
    defaults = {"topic": "t", "uid": topic_uid, "producer": "p", "epoch": 3, "attempt": 2, "files": [FILE]}
    request = topics_pb2.SignUploadsRequest(**(defaults | values))  # type: ignore[arg-type]
    return await service.SignUploads(request, FakeServicerContext())  # type: ignore[arg-type]


@virtual_time
async def test_each_file_gets_a_name_and_a_url_of_its_own() -> None:
    async with upload_service() as (service, uid):
        uploads = list((await sign(service, uid, files=[FILE, FILE])).uploads)
        assert len({upload.name for upload in uploads}) == 2
        for upload in uploads:
            assert upload.name.startswith("p-3-2-")
            assert upload.url.startswith(f"http://filer:8333/smq/{paths.uploaded_file(uid, upload.name)}?")
            assert upload.headers["if-none-match"] == "*" and upload.headers["content-length"] == "7"


@pytest.mark.parametrize("producer", ["../../other/uid/x", "a/b", "..", "ä"])
@virtual_time
async def test_no_producer_leads_out_of_the_uploads_of_its_topic(producer: str) -> None:
    async with upload_service() as (service, uid):
        (upload,) = (await sign(service, uid, producer=producer)).uploads
        folder, _, name = upload.url.partition("?")[0].rpartition("/")
        assert (folder, name) == (f"http://filer:8333/smq/{paths.uploads_folder(uid)}", upload.name)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"topic": "other"}, "there is no topic"),
        ({"uid": "former"}, "was deleted"),
        ({"producer": ""}, "producer's id is missing"),
        ({"producer": "p" * 128, "epoch": 2**64 - 1, "attempt": 2**32 - 1}, "up to 200 letters"),
        ({"files": [FILE] * 101}, "100 files, not 101"),
        ({"files": [FILE, topics_pb2.SignUploadsRequest.File(sha256=b"\0" * 32)]}, r"files\[1\] has 0 bytes"),
        ({"files": [topics_pb2.SignUploadsRequest.File(size=(5 << 30) + 1, sha256=b"\0" * 32)]}, r"files\[0\] has"),
        ({"files": [topics_pb2.SignUploadsRequest.File(size=1, sha256=b"\0" * 31)]}, "32 bytes, not 31"),
    ],
)
@virtual_time
async def test_a_request_that_is_wrong_gets_no_url(values: dict[str, object], message: str) -> None:
    async with upload_service() as (service, uid):
        with pytest.raises(RpcAborted, match=message):
            await sign(service, uid, **values)


@virtual_time
async def test_a_store_that_takes_unsigned_requests_gets_no_urls() -> None:
    async with upload_service(open_store("memory://")) as (service, uid):
        with pytest.raises(RpcAborted, match="write there directly"):
            await sign(service, uid)
