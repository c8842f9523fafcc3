"""Which readers share a connection, when it is closed, and when it is cut."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pyarrow.flight as fl
import pytest

from smq.reading.tail_stream import TailStream
from smq.transport.dialer import DIRECT
from smq.transport.reader_channels import UNRESPONSIVE_AFTER_SECONDS, ReaderChannels
from smq_core.errors import Unreachable
from smq_core.model.entities import Replica
from support.waiting import HANG_GUARD

REPLICA = Replica("a", "a-1", "a:1")


OTHER = Replica("b", "i2", "b:1")


class FakeChannel:
    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.closed = self.cut = False
        self.client: Any = SimpleNamespace()

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.cut = True


class Network:
    """Opens channels; fails as often as the test says."""

    def __init__(self) -> None:
        self.opened: list[FakeChannel] = []
        self.failures = 0
        self.may_open = threading.Event()
        self.may_open.set()
        self.channels = ReaderChannels("default/t", DIRECT, self._open)

    def _open(self, replica: Replica, _: object) -> Any:
        assert self.may_open.wait(HANG_GUARD)
        if self.failures:
            self.failures -= 1
            raise Unreachable("no answer")
        self.opened.append(FakeChannel(replica))
        return self.opened[-1]


def test_readers_of_one_broker_share_a_connection_until_the_last_one_ends() -> None:
    network = Network()
    shared = [network.channels.acquire(REPLICA) for _ in range(3)]
    for one in shared:
        network.channels.connect(one)
    network.channels.connect(network.channels.acquire(OTHER))
    assert [it.replica for it in network.opened] == [REPLICA, OTHER]
    for one in shared[:2]:
        network.channels.release(one)
    assert not network.opened[0].closed
    network.channels.release(shared[2])
    assert network.opened[0].closed and not network.opened[1].closed
    network.channels.connect(network.channels.acquire(REPLICA))
    assert len(network.opened) == 3


def test_who_comes_while_another_one_connects_gets_the_same_connection() -> None:
    network = Network()
    network.may_open.clear()
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(network.channels.connect(network.channels.acquire(REPLICA))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    network.may_open.set()
    for thread in threads:
        thread.join(HANG_GUARD)
    assert len(found) == 4 and len(network.opened) == 1


def test_a_broker_that_cannot_be_reached_is_tried_again_by_the_next_reader() -> None:
    network = Network()
    network.failures = 1
    first, second = network.channels.acquire(REPLICA), network.channels.acquire(REPLICA)
    for one in (first, second):
        with pytest.raises(Unreachable):
            network.channels.connect(one)
        network.channels.release(one)
    network.channels.connect(network.channels.acquire(REPLICA))
    assert len(network.opened) == 1


def test_a_connection_is_cut_only_if_nobody_gets_frames_over_it() -> None:
    network = Network()
    shared = network.channels.acquire(REPLICA)
    network.channels.connect(shared)
    shared.got_frame(100.0)
    shared.cut_if_unresponsive(100.0 + UNRESPONSIVE_AFTER_SECONDS)
    assert not network.opened[0].cut
    shared.cut_if_unresponsive(100.1 + UNRESPONSIVE_AFTER_SECONDS)
    assert network.opened[0].cut
    network.channels.connect(network.channels.acquire(REPLICA))
    assert len(network.opened) == 2, "the next reader connects anew"
    network.channels.release(shared)
    assert network.opened[0].closed and not network.opened[1].closed
    network.channels.connect(network.channels.acquire(REPLICA))
    assert len(network.opened) == 2, "which stays the one that readers share"


def test_a_connection_that_breaks_is_not_given_to_the_next_reader() -> None:
    network = Network()
    network.channels.connect(network.channels.acquire(REPLICA))  # by a reader that gets nothing at present

    def break_connection(*_: object) -> Any:
        raise fl.FlightUnavailableError("connection reset")

    network.opened[0].client.do_get = break_connection
    with pytest.raises(Unreachable):
        next(TailStream(segment="t-0-16-0", uid="uid", replica=REPLICA, channels=network.channels).frames(0))
    network.channels.connect(network.channels.acquire(REPLICA))
    assert len(network.opened) == 2


def test_a_stream_that_is_aborted_before_it_begins_cuts_a_connection_without_frames() -> None:
    network = Network()
    shared = network.channels.acquire(REPLICA)
    network.channels.connect(shared)
    stream = TailStream(segment="t-0-16-0", uid="uid", replica=REPLICA, channels=network.channels)

    def hang(*_: object) -> Any:
        shared.got_frame(float("-inf"))
        stream.abort()  # as another thread does
        assert network.opened[0].cut, "the call would hang"
        raise fl.FlightUnavailableError("connection reset")

    network.opened[0].client.do_get = hang
    with pytest.raises(Unreachable):
        next(stream.frames(0))
