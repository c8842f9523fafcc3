"""Connections made before they are needed: a real Flight server, whose TCP connections are counted."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow.flight as fl
import pytest

from smq.channel import sockets_to
from smq.network import DIRECT
from smq.prepared import Prepared
from smq_core.errors import Unavailable
from smq_core.keyspace import KeyRange
from smq_core.model import Durability, Phase, Replica, Segment
from smq_storage.ports import free_port
from support.waiting import eventually


@pytest.fixture
def server() -> Iterator[fl.FlightServerBase]:
    with fl.FlightServerBase("grpc://127.0.0.1:0") as it:
        yield it


@pytest.fixture
def prepared() -> Iterator[Prepared]:
    it = Prepared(DIRECT)
    yield it
    it.close()


def segment(number: int, port: int) -> Segment:
    replica = Replica("b", "b.1", f"127.0.0.1:{port}")
    return Segment(f"t-0-8-{number}", number, KeyRange(0, 8), Phase.PENDING, Durability.REPLICATED, (replica,))


def connected(port: int, count: int) -> None:
    eventually(lambda: len(sockets_to(port)) == count, what=f"{count} connections")


def test_what_was_prepared_is_taken_once(server: fl.FlightServerBase, prepared: Prepared) -> None:
    one, two = segment(1, server.port), segment(2, server.port)
    prepared.prepare([one, two])
    connected(server.port, 2)
    prepared.prepare([one, two])
    eventually(lambda: prepared.ready == {one.name, two.name})
    taken = [prepared.take(each) for each in (one, two)]
    connected(server.port, 2)
    taken.append(prepared.take(one))
    connected(server.port, 3)
    for channel in taken:
        channel.close()
    connected(server.port, 0)


def test_what_is_not_wanted_any_more_is_closed(server: fl.FlightServerBase, prepared: Prepared) -> None:
    one, two = segment(1, server.port), segment(2, server.port)
    prepared.prepare([one, two])
    connected(server.port, 2)
    prepared.keep({two.name})
    connected(server.port, 1)
    prepared.close()
    connected(server.port, 0)


def test_what_is_not_wanted_when_it_is_connected_is_closed(server: fl.FlightServerBase, prepared: Prepared) -> None:
    one = segment(1, server.port)
    prepared.prepare([one])
    prepared.keep(())
    two = segment(2, server.port)
    prepared.prepare([two])
    eventually(lambda: prepared.ready == {two.name})
    connected(server.port, 1)


def test_a_broker_that_is_not_there_is_told_to_whoever_needs_it(prepared: Prepared) -> None:
    nobody = segment(1, free_port())
    prepared.prepare([nobody])
    with pytest.raises(Unavailable):
        prepared.take(nobody)
