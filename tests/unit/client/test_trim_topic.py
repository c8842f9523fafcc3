"""A trim takes as many requests as it has passes, and sums up what they removed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from smq.admin import Admin
from smq_core.errors import Unavailable
from smq_proto.v1 import admin_pb2


class Passes:
    """A leader that answers one request after the other."""

    def __init__(self, *replies: admin_pb2.TrimTopicReply | Unavailable) -> None:
        self._replies = list(replies)
        self.requests: list[admin_pb2.TrimTopicRequest] = []

    @property
    def admin(self) -> Passes:
        return self

    def TrimTopic(self, request: admin_pb2.TrimTopicRequest) -> admin_pb2.TrimTopicReply:
        self.requests.append(request)
        reply = self._replies.pop(0)
        if isinstance(reply, Unavailable):
            raise reply
        return reply


def one_pass(segment: str, *, more: bool) -> admin_pb2.TrimTopicReply:
    removed = admin_pb2.TrimTopicReply.Removed(segment=segment, messages=3, bytes=5)
    kept = [] if more else [admin_pb2.TrimTopicReply.Kept(segment="s9", reason="open")]
    return admin_pb2.TrimTopicReply(removed=[removed], kept=kept, more=more)


def admin_of(leader: Any) -> Admin:
    return Admin(leader, "default", leader)


def test_a_trim_goes_on_while_the_leader_says_that_there_is_more() -> None:
    leader = Passes(one_pass("s0", more=True), one_pass("s1", more=True), one_pass("s2", more=False))
    done = admin_of(leader).trim_topic("t", datetime(2024, 1, 1, tzinfo=UTC), skip_unread=True)
    assert [it.name for it in done.removed] == ["s0", "s1", "s2"] and done.kept == {"s9": "open"}
    assert len(leader.requests) == 3
    assert all(it == leader.requests[0] and it.skip_unread and not it.preview for it in leader.requests)


def test_a_trim_that_fails_half_way_is_an_error() -> None:
    leader = Passes(one_pass("s0", more=True), Unavailable("an atomic publish is unfinished"))
    with pytest.raises(Unavailable, match="an atomic publish is unfinished"):
        admin_of(leader).trim_topic("t", datetime(2024, 1, 1, tzinfo=UTC))
