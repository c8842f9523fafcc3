"""URLs for reads: signed ahead, kept in memory, and replaced before they expire."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from smq.transport import read_urls
from smq.transport.read_urls import AHEAD, ReadUrls
from smq_core.errors import PermissionDenied, StoreDenied, StoreUnavailable
from smq_proto.v1 import topics_pb2

LIFETIME = 900
FOLDER = "default/t/u/s-1"
FILES = [f"{FOLDER}/{n:020d}.parquet" for n in range(AHEAD * 2 + 50)]


class Leader:
    """Signs everything, unless it ``denies``. ``requested`` has the paths of each call."""

    def __init__(self) -> None:
        self.requested: list[list[str]] = []
        self.denies = False
        self.now = 1000.0
        self.latency = 0.0

    def SignReads(self, request: topics_pb2.SignReadsRequest) -> topics_pb2.SignReadsReply:
        if self.denies:
            raise PermissionDenied("no")
        assert (request.topic, request.uid) == ("default/t", "u")
        self.requested.append(list(request.paths))
        urls = [f"http://filer/{path}?{len(self.requested)}" for path in request.paths]
        self.now += self.latency
        return topics_pb2.SignReadsReply(urls=urls, lifetime_seconds=LIFETIME)

    def ListFiles(self, request: topics_pb2.ListFilesRequest) -> topics_pb2.ListFilesReply:
        after = [path for path in FILES if path.startswith(request.folder) and path > request.after]
        files = [topics_pb2.ListFilesReply.File(path=path, size=3, modified=5_000_000) for path in after]
        return topics_pb2.ListFilesReply(files=files[: read_urls.FULL_LIST])


@pytest.fixture
def leader() -> Leader:
    return Leader()


@pytest.fixture
def urls(leader: Leader) -> ReadUrls:
    return ReadUrls(leader, "default/t", "u", lambda: leader.now)


def test_a_url_is_signed_once(leader: Leader, urls: ReadUrls) -> None:
    assert urls.url(FILES[0]) == urls.url(FILES[0]) == f"http://filer/{FILES[0]}?1"
    assert leader.requested == [FILES[:1]]


def test_the_files_that_follow_are_signed_in_the_same_call(leader: Leader, urls: ReadUrls) -> None:
    urls.expect(FILES)
    for path in FILES:
        urls.url(path)
    assert leader.requested == [FILES[:AHEAD], FILES[AHEAD : 2 * AHEAD], FILES[2 * AHEAD :]]


def test_a_reader_in_the_middle_signs_what_follows(leader: Leader, urls: ReadUrls) -> None:
    urls.expect(FILES[:5])
    urls.url(FILES[3])
    urls.url(FILES[0])
    assert leader.requested == [FILES[3:5], FILES[:3]]


def test_files_of_a_listing_may_be_expected(leader: Leader, urls: ReadUrls) -> None:
    urls.expect(it.path for it in urls.list(FOLDER, None))
    urls.url(FILES[0])
    assert leader.requested == [FILES[:AHEAD]]


@pytest.mark.parametrize("latency", [0.0, 30.0])
def test_a_url_is_replaced_before_it_expires(leader: Leader, urls: ReadUrls, latency: float) -> None:
    leader.latency = latency
    signed_after, first = leader.now, urls.url(FILES[0])
    while leader.now < signed_after + LIFETIME:
        leader.now += 10.0
        if urls.url(FILES[0]) != first:
            break
    assert signed_after + LIFETIME * 0.75 < leader.now - latency < signed_after + LIFETIME * 0.85


def test_files_are_renewed_together(leader: Leader, urls: ReadUrls) -> None:
    urls.expect(FILES[:3])
    urls.url(FILES[0])
    leader.now += LIFETIME
    for path in FILES[1:3]:
        urls.url(path)
    assert leader.requested == [FILES[:3], FILES[1:3]]


def test_a_refused_url_is_replaced_with_those_that_were_signed_with_it(leader: Leader, urls: ReadUrls) -> None:
    urls.expect(FILES[:3])
    refused = urls.url(FILES[0])
    fresh = urls.renew(FILES[0], refused)
    assert fresh != refused and urls.renew(FILES[0], refused) == fresh, "another thread has renewed it"
    assert urls.url(FILES[1]).endswith("?2")


def test_whoever_may_not_read_any_more_gets_no_url(leader: Leader, urls: ReadUrls) -> None:
    urls.url(FILES[0])
    leader.denies = True
    leader.now += LIFETIME
    for path in FILES[:2]:
        with pytest.raises(PermissionDenied):
            urls.url(path)


def test_what_readers_do_not_need_takes_credentials(leader: Leader, urls: ReadUrls) -> None:
    with pytest.raises(StoreDenied, match=r"for 'default/t/u/_pins/p.json': set AWS_ACCESS_KEY_ID"):
        urls.url("default/t/u/_pins/p.json")
    assert not leader.requested


def test_what_is_kept_is_bounded(leader: Leader, urls: ReadUrls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_urls, "MAX_URLS", 10)
    monkeypatch.setattr(read_urls, "MAX_EXPECTED", 10)
    for begin in range(0, 100, 20):
        urls.expect(FILES[begin : begin + 20])
        urls.url(FILES[begin + 9])
    assert len(urls._urls) == len(urls._following) == 10
    assert "filer" not in repr(urls._urls), "a URL is a secret"


def test_a_listing_goes_on_after_a_full_answer(leader: Leader, urls: ReadUrls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_urls, "FULL_LIST", 100)
    found = list(urls.list(FOLDER, FILES[9]))
    assert [it.path for it in found] == FILES[10:]
    assert found[0].size == 3 and found[0].modified == datetime.fromtimestamp(5, UTC)
    assert list(urls.list("_uploads/u", None)) == []
    with pytest.raises(StoreDenied, match="AWS_ACCESS_KEY_ID"):
        next(urls.list("default/t/u/_groups", None))
    with pytest.raises(StoreUnavailable, match="which the leader has"):
        next(urls.list("default/t/u", None))
    urls.url(FILES[10])
    assert len(leader.requested[0]) == AHEAD, "what was listed is expected"
