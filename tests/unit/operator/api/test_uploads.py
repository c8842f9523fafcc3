"""SignUploads, SignReads and ListFiles: which requests get URLs, for which files, and which folders are listed."""

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


@virtual_time
async def test_a_large_value_has_the_name_that_its_message_has() -> None:
    async with upload_service() as (service, uid):
        named = topics_pb2.SignUploadsRequest.File(size=7, sha256=b"\0" * 32, large_value="p-3-n.value")
        large, upload = (await sign(service, uid, files=[named, FILE])).uploads
        assert large.name == "p-3-n.value" and upload.name.startswith("p-3-2-")
        assert large.url.startswith(f"http://filer:8333/smq/{paths.large_value(uid, large.name)}?")
        assert large.headers["if-none-match"] == "*" and large.headers["content-length"] == "7"


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
        *(
            (
                {"files": [topics_pb2.SignUploadsRequest.File(size=1, sha256=b"\0" * 32, large_value=name)]},
                "large value",
            )
            for name in (
                "../../default/t/_topic.json",
                "../v/p.value",
                ".p.value",
                "p.parquet",
                "p.value/",
                "a/p.value",
            )
        ),
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


async def sign_reads(service: TopicService, topic_uid: str, **values: object) -> topics_pb2.SignReadsReply:
    defaults = {"topic": TOPIC, "uid": topic_uid, "paths": [paths.layout(TOPIC, topic_uid)]}
    request = topics_pb2.SignReadsRequest(**(defaults | values))  # type: ignore[arg-type]
    return await service.SignReads(request, FakeServicerContext())  # type: ignore[arg-type]


@virtual_time
async def test_readers_get_urls_for_a_quarter_of_an_hour_in_the_order_of_the_files() -> None:
    async with upload_service() as (service, uid):
        files = [paths.chunk(TOPIC, uid, "s-1", 0), paths.large_value(uid, "p-1-n.value"), paths.layout(TOPIC, uid)]
        reply = await sign_reads(service, uid, paths=files)
        assert [url.partition("?")[0] for url in reply.urls] == [f"http://filer:8333/smq/{it}" for it in files]
        assert all("X-Amz-Expires=900&" in url for url in reply.urls) and reply.lifetime_seconds == 900
        assert len((await sign_reads(service, uid, paths=files[:1] * 1000)).urls) == 1000


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"topic": "other"}, "there is no topic"),
        ({"uid": "former"}, "was deleted"),
        ({"paths": [paths.layout(TOPIC, "former")]}, "is not a file of default/t that its readers need"),
        ({"paths": [paths.layout("default/u", "uid")]}, "is not a file of default/t"),
        ({"paths": ["_clock.json"]}, "is not a file of default/t"),
        ({"paths": ["_clock.json"] * 1001}, "1,000 files, not 1,001"),
    ],
)
@virtual_time
async def test_a_wrong_request_of_a_reader_gets_no_url(values: dict[str, object], message: str) -> None:
    async with upload_service() as (service, uid):
        with pytest.raises(RpcAborted, match=message):
            await sign_reads(service, uid, **values)


@virtual_time
async def test_readers_of_a_store_that_takes_unsigned_requests_get_no_urls() -> None:
    async with upload_service(open_store("memory://")) as (service, uid):
        with pytest.raises(RpcAborted, match="read directly"):
            await sign_reads(service, uid)


@virtual_time
async def test_the_files_of_a_segment_are_listed_in_parts() -> None:
    store = open_store("memory://")
    async with upload_service(store) as (service, uid):
        chunks = [paths.chunk(TOPIC, uid, "s-1", n) for n in range(1001)]
        for path in (*chunks, paths.chunk(TOPIC, uid, "s-2", 0)):
            store.put(path, b"abc")

        async def listed(folder: str, after: str = "") -> list[topics_pb2.ListFilesReply.File]:
            request = topics_pb2.ListFilesRequest(topic=TOPIC, uid=uid, folder=folder, after=after)
            return list((await service.ListFiles(request, FakeServicerContext())).files)  # type: ignore[arg-type]

        folder = paths.segment_folder(TOPIC, uid, "s-1")
        first = await listed(folder)
        assert [it.path for it in first] == chunks[:1000] and first[0].size == 3 and first[0].modified
        assert [it.path for it in await listed(folder, first[-1].path)] == chunks[1000:]
        for other in (paths.groups_folder(TOPIC, uid), paths.uploads_folder(uid), "", paths.topic_folder(TOPIC, "v")):
            with pytest.raises(RpcAborted, match="is not a folder of default/t"):
                await listed(other)


@pytest.mark.parametrize(
    ("seconds", "message"), [(3600, "hands out no keys of the filer"), (899, "900 to 3600"), (3601, "900 to 3600")]
)
@virtual_time
async def test_a_release_without_a_role_gives_no_keys(seconds: int, message: str) -> None:
    async with upload_service() as (service, _):
        request = topics_pb2.GetFilerKeysRequest(topic="t", lifetime_seconds=seconds)
        with pytest.raises(RpcAborted, match=message):
            await service.GetFilerKeys(request, FakeServicerContext())  # type: ignore[arg-type]
