"""A connection of its own for each stream: cutting one leaves the others alone."""

from __future__ import annotations

import pyarrow.flight as fl
import pytest

from smq.channel import Channel
from smq.network import DIRECT


class Echo(fl.FlightServerBase):
    def do_action(self, context: object, action: fl.Action) -> list[bytes]:
        return [action.body.to_pybytes()]


def asks(channel: Channel) -> bytes:
    (answer,) = channel.client.do_action(("echo", b"here"), fl.FlightCallOptions(timeout=5))
    return bytes(answer.body.to_pybytes())


def test_cutting_one_connection_leaves_another_one_to_the_same_broker() -> None:
    with Echo("grpc://0.0.0.0:0") as server:
        channels = [Channel.open(f"localhost:{server.port}", DIRECT) for _ in range(3)]
        ports = [{it.getsockname()[1] for it in channel._sockets} for channel in channels]
        assert all(len(each) == 1 for each in ports) and len(set.union(*ports)) == 3, "each knows its own"
        first, cut, third = [channel._sockets[0].dup() for channel in channels]
        channels[1].abort()
        with pytest.raises(OSError):
            cut.getpeername()
        assert first.getpeername()[1] == third.getpeername()[1] == server.port
        assert [asks(channels[0]), asks(channels[2])] == [b"here", b"here"]
        for it in (first, cut, third):
            it.close()
        for channel in channels:
            channel.close()
