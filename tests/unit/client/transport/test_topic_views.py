"""Which views of topics a client keeps: those in use, and a few others."""

from __future__ import annotations

import pytest

from smq.transport.topic_views import MAX_IDLE_VIEWS, TopicViews
from smq_core.errors import InvalidRequest, Unavailable, UnknownTopic


class FakeView:
    def __init__(self, name: str) -> None:
        self.name = name
        self.deleted: UnknownTopic | None = None
        self.failure: Exception | None = None
        self.has_listeners = False
        self.closed = False

    def wait_for_snapshot(self) -> None:
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        self.closed = True


class Views:
    def __init__(self) -> None:
        self.opened: list[FakeView] = []
        self.views = TopicViews(self._open)

    def _open(self, name: str) -> FakeView:
        self.opened.append(FakeView(name))
        return self.opened[-1]

    def use(self, name: str) -> FakeView:
        with self.views.lease(name) as view:
            return view

    @property
    def kept(self) -> list[str]:
        return [it.name for it in self.opened if not it.closed]


@pytest.fixture
def views() -> Views:
    return Views()


def test_of_many_topics_those_that_were_used_last_are_kept(views: Views) -> None:
    for number in range(5 * MAX_IDLE_VIEWS):
        views.use(f"t{number}")
        views.use("often")
    assert sorted(views.kept) == sorted(
        ["often", *(f"t{n}" for n in range(4 * MAX_IDLE_VIEWS + 1, 5 * MAX_IDLE_VIEWS))]
    )
    assert views.use("often") is views.opened[1], "it was never closed"


def test_a_view_is_kept_while_it_is_in_use(views: Views) -> None:
    listening = views.use("listening")
    listening.has_listeners = True
    with views.views.lease("leased") as leased:
        for number in range(2 * MAX_IDLE_VIEWS):
            views.use(f"t{number}")
        assert not leased.closed and not listening.closed
    listening.has_listeners = False
    for number in range(2 * MAX_IDLE_VIEWS):
        views.use(f"t{number}")
    assert leased.closed and listening.closed and len(views.kept) == MAX_IDLE_VIEWS


def test_a_topic_that_cannot_be_located_is_not_kept_unless_another_call_waits_for_it(views: Views) -> None:
    view = views.use("t")
    view.failure = Unavailable("no leader")
    with pytest.raises(Unavailable), views.views.lease("t"):
        pass
    assert view.closed

    view = views.use("t")
    with views.views.lease("t"):
        view.failure = Unavailable("no leader")
        with pytest.raises(Unavailable), views.views.lease("t"):
            pass
        assert not view.closed


def test_a_topic_that_proves_deleted_is_not_kept(views: Views) -> None:
    view = views.use("t")
    deleted = UnknownTopic("it was deleted")
    view.wait_for_snapshot = lambda: setattr(view, "deleted", deleted)  # type: ignore[method-assign]
    with pytest.raises(UnknownTopic), views.views.lease("t"):
        pass
    assert view.closed and views.use("t") is not view


def test_a_topic_that_was_created_again_is_located_again(views: Views) -> None:
    former = views.use("t")
    former.deleted = UnknownTopic("it was deleted")
    assert views.use("t") is views.opened[1] and former.closed
    used = views.use("t")
    used.has_listeners, used.deleted = True, UnknownTopic("it was deleted")
    with pytest.raises(UnknownTopic), views.views.lease("t"):
        pass
    assert not used.closed, "a producer or consumer has it still"


def test_after_close_there_are_none(views: Views) -> None:
    view = views.use("t")
    views.views.close()
    assert view.closed
    with pytest.raises(InvalidRequest, match="closed"), views.views.lease("t"):
        pass
