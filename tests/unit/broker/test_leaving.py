"""How long a broker that is to end waits for its leader, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from smq_broker import process
from smq_broker.process import Broker

LEADER_TIMEOUT, GRACE = 5.0, 110.0


class VirtualSession:
    """A leader's session whose waits move the clock. The leader answers until ``answers_until``."""

    def __init__(self, answers_until: float, leaves_after: float) -> None:
        self.now = self.answered_at = 0.0
        self._answers_until, self._leaves_after = answers_until, leaves_after
        self.may_leave = self

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        if self.now <= self._answers_until:
            self.answered_at = self.now
        return self.now >= self._leaves_after


@pytest.fixture
def wait_until_sealed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[bool, float]]:
    def wait(leader: str = "l:1", answers_until: float = 0.0, leaves_after: float = 1e9) -> tuple[bool, float]:
        session = VirtualSession(answers_until, leaves_after)
        monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=lambda: session.now))
        settings = SimpleNamespace(leader=leader, leader_timeout=LEADER_TIMEOUT, grace=GRACE)
        it = cast(Any, SimpleNamespace(settings=settings))
        return Broker._wait_until_sealed(it, cast(Any, session)), session.now

    return wait


def test_it_leaves_when_the_leader_has_sealed_its_segments(wait_until_sealed: Callable[..., Any]) -> None:
    sealed, after = wait_until_sealed(answers_until=1e9, leaves_after=60.0)
    assert sealed and after == pytest.approx(60.0, abs=0.2)


def test_answers_of_the_leader_keep_it(wait_until_sealed: Callable[..., Any]) -> None:
    sealed, after = wait_until_sealed(answers_until=30.0)
    assert not sealed and after == pytest.approx(30.0 + LEADER_TIMEOUT, abs=0.3)


def test_without_a_leader_it_waits_a_moment(wait_until_sealed: Callable[..., Any]) -> None:
    sealed, after = wait_until_sealed(leader="")
    assert not sealed and after == pytest.approx(LEADER_TIMEOUT, abs=0.3)


def test_it_waits_no_longer_than_its_grace(wait_until_sealed: Callable[..., Any]) -> None:
    sealed, after = wait_until_sealed(answers_until=1e9)
    assert not sealed and after == pytest.approx(GRACE, abs=0.3)
