"""A stream of a segment that is cut before it is connected."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from smq.producing.streams import segment_stream
from smq.producing.streams.segment_stream import SegmentStream
from smq.transport.dialer import DIRECT
from smq_core.errors import Unavailable
from smq_storage.chunks.schemas import message_schema
from support.in_memory.topic import TopicInMemory


class Channel:
    """A connection to a broker, which fails once it is cut."""

    def __init__(self) -> None:
        self.is_cut = False
        self.client = SimpleNamespace(do_put=self._do_put)

    def abort(self) -> None:
        self.is_cut = True

    def _do_put(self, *_: object) -> Any:
        assert self.is_cut, "the stream would begin, and nobody would end it"
        raise OSError("connection reset")


def test_a_stream_that_is_cut_while_it_connects_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[SegmentStream] = []

    def connect(address: str, dialer: object) -> Channel:
        made[0].abort()
        return Channel()

    monkeypatch.setattr(segment_stream.FlightChannel, "open", connect)
    segment, schema = TopicInMemory().first, message_schema(())
    made.append(SegmentStream(segment, "uid", "p", 1, "i", schema, DIRECT, lambda *_: None, lambda *_: None))
    with pytest.raises(Unavailable):
        made[0].open()
