"""The document of atomic publishes: owners, versions, limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from smq_core.errors import InvalidRequest, Overloaded, PermissionDenied, ProducerFenced, Unavailable
from smq_core.model import atomic_publish
from smq_core.model.atomic_publish import (
    APP_EXPIRY,
    ONE_OFF_EXPIRY,
    AtomicFile,
    AtomicPublishes,
    CommitResult,
    LayoutMark,
    claim_app,
    commit_version,
    complete_version,
)

MARK = LayoutMark(7, (3, 5), 6)
FILES = (AtomicFile(upload="a.parquet", etag="etag", rows=10, bytes=100, timestamp_min=0, timestamp_max=1),)


def claimed(owner: str = "one", document: AtomicPublishes | None = None, app: str = "etl", now: int = 0):
    return claim_app(document if document is not None else AtomicPublishes(), app, owner, f"producer-{app}", now)


def commit(document: AtomicPublishes, version: int, *, owner: str = "one", request: str = "r", files=FILES):
    return commit_version(document, "etl", owner, version, request, files, MARK, 0)


def published(document: AtomicPublishes, version: int, **more) -> AtomicPublishes:
    return complete_version(commit(document, version, **more)[0], "etl", document.app("etl").epoch + 1, 0)


def test_a_version_is_unfinished_until_it_is_complete() -> None:
    document, result = commit(claimed(), 4)
    app = document.app("etl")
    assert result is CommitResult.COMMITTED and app.version == 4 and app.epoch == 1
    assert app.unfinished is not None and app.unfinished.files == FILES and app.unfinished.layout == MARK
    done = complete_version(document, "etl", 1, 0)
    assert not done.unfinished and done.app("etl").version == 4
    assert complete_version(done, "etl", 1, 0) is done


def test_a_repeated_request_gets_the_same_answer() -> None:
    document, _ = commit(claimed(), 4)
    assert commit(document, 4) == (document, CommitResult.COMMITTED)
    done = complete_version(document, "etl", 1, 0)
    assert commit(done, 4) == (done, CommitResult.COMMITTED)
    taken = claimed("two", done)
    assert commit(taken, 4) == (taken, CommitResult.COMMITTED), "its answer may have been lost"


@pytest.mark.parametrize("version", [0, 3, 4])
def test_a_version_that_is_not_higher_is_already_published(version: int) -> None:
    document = published(claimed(), 4)
    assert commit(document, version, request="another") == (document, CommitResult.ALREADY_PUBLISHED)
    assert commit(document, 9)[1] is CommitResult.COMMITTED, "gaps are allowed"


def test_the_next_version_waits_for_the_one_before() -> None:
    document, _ = commit(claimed(), 4)
    with pytest.raises(Unavailable, match="version 4"):
        commit(document, 5, request="next")
    stale = complete_version(document, "etl", 0, 0)
    assert stale is document, "the epoch of another publish"


@pytest.mark.parametrize(("version", "words"), [(4, "may have been published"), (5, "did not publish version 5")])
def test_the_error_of_a_fenced_owner_says_whether_its_version_may_be_published(version: int, words: str) -> None:
    document = claimed("two", published(claimed(), 4))
    with pytest.raises(ProducerFenced, match=words):
        commit(document, version, request="another")


def test_another_owner_takes_the_app_over() -> None:
    document = claimed("two", published(claimed(), 4))
    with pytest.raises(ProducerFenced, match="another owner"):
        commit(document, 5)
    with pytest.raises(ProducerFenced):
        commit(document, 3, request="another")
    assert commit(document, 5, owner="two")[1] is CommitResult.COMMITTED
    assert claimed("two", document) is document
    with pytest.raises(ProducerFenced):
        commit(AtomicPublishes(), 5)


def test_an_owner_that_was_replaced_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    document = claimed("two", claimed("one"))
    with pytest.raises(ProducerFenced, match="had it before and was replaced"):
        claimed("one", document)
    monkeypatch.setattr(atomic_publish, "MAX_FORMER_OWNERS", 2)
    for owner in ("three", "four"):
        document = claimed(owner, document)
    assert document.app("etl").former_owners == ("two", "three"), "no more are remembered"


def test_an_app_that_publishes_once_is_forgotten_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic_publish, "MAX_APPS", 2)
    document = claimed(document=claim_app(AtomicPublishes(), "once", "one", "p", 0, one_off=True))
    with pytest.raises(Overloaded):
        claimed(document=document, app="new", now=ONE_OFF_EXPIRY)
    later = claimed(document=document, app="new", now=ONE_OFF_EXPIRY + 1)
    assert [it.app for it in later.apps] == ["etl", "new"]


def test_a_take_over_keeps_what_is_unfinished() -> None:
    document = claimed("two", commit(claimed(), 4)[0])
    assert document.app("etl").unfinished is not None
    assert commit(document, 4, owner="two", request="replay") == (document, CommitResult.ALREADY_PUBLISHED)


def test_each_publish_has_an_epoch_of_its_own() -> None:
    assert published(published(claimed(), 1), 2).app("etl").epoch == 2


def test_a_version_without_files_is_complete_at_once() -> None:
    document, _ = commit(claimed(), 1, files=())
    assert not document.unfinished and document.app("etl").version == 1


def test_bad_input_changes_nothing() -> None:
    with pytest.raises(InvalidRequest, match="twice"):
        commit(claimed(), 1, files=FILES * 2)
    with pytest.raises(InvalidRequest, match="0 or more"):
        commit(claimed(), -1)
    for name in ("", "x" * 129, "a\nb"):
        with pytest.raises(InvalidRequest, match="name"):
            claimed(app=name)


def test_the_document_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic_publish, "MAX_FILES", 2)
    monkeypatch.setattr(atomic_publish, "MAX_UNFINISHED_FILES", 3)
    two, three = (tuple(replace(FILES[0], upload=f"{n}.parquet") for n in range(count)) for count in (2, 3))
    with pytest.raises(InvalidRequest, match="at most 2 files"):
        commit(claimed(), 1, files=three)
    document = claimed("one", commit(claimed(), 1, files=two)[0], app="other")
    with pytest.raises(Overloaded, match="at most 3"):
        commit_version(document, "other", "one", 1, "r", two, MARK, 0)


def test_an_app_expires_only_when_its_place_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic_publish, "MAX_APPS", 2)
    document = claimed(document=claimed(app="old"), now=10)
    with pytest.raises(Overloaded, match="2 apps"):
        claimed(document=document, app="new", now=APP_EXPIRY)
    fresh = claimed(document=document, app="new", now=APP_EXPIRY + 1)
    assert [it.app for it in fresh.apps] == ["etl", "new"]
    busy = commit(claimed(document=claimed(app="busy"), now=0), 1)[0]
    assert busy.app("etl").unfinished is not None
    late = claimed(document=busy, app="new", now=APP_EXPIRY + 1)
    assert [it.app for it in late.apps] == ["etl", "new"], "what is unfinished never expires"


def test_an_app_is_one_of_the_identity_that_made_it() -> None:
    mine = claim_app(AtomicPublishes(), "etl", "one", "p", 0, identity="alice", may_take_over=False)
    again = claim_app(mine, "etl", "two", "p", 1, identity="alice", may_take_over=False)
    assert again.app("etl").owner == "two" and again.app("etl").identity == "alice"
    for owner in ("two", "three"):
        with pytest.raises(PermissionDenied, match="app 'etl' is one of alice"):
            claim_app(again, "etl", owner, "p", 2, identity="bob", may_take_over=False)
    taken = claim_app(again, "etl", "three", "p", 2, identity="bob", may_take_over=True)
    assert taken.app("etl").owner == "three" and taken.app("etl").identity == "bob"
    with pytest.raises(PermissionDenied):
        claim_app(taken, "etl", "four", "p", 3, identity="alice", may_take_over=False)


def test_an_app_of_an_open_release_is_anybodys_until_somebody_is_known() -> None:
    kept = claim_app(claimed("one"), "etl", "two", "p", 1, identity="alice", may_take_over=False)
    assert kept.app("etl").identity == "alice"
    assert claim_app(kept, "etl", "three", "p", 2).app("etl").identity == "alice", "without security nobody is known"
