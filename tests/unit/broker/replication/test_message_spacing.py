"""When a client counts as active, and how far apart the messages to a follower are, in virtual time."""

from __future__ import annotations

import pytest

from smq_broker.replication.message_spacing import (
    IDLE_AFTER_SECONDS,
    MAX_SPACING_SECONDS,
    SPACING_PER_CLIENT_SECONDS,
    ActiveClients,
    ClientActivity,
)


def active(clients: ActiveClients, count: int) -> list[ClientActivity]:
    streams = [ClientActivity(clients) for _ in range(count)]
    for stream in streams:
        stream.received(100.0)
    return streams


def test_the_only_client_never_waits() -> None:
    clients = ActiveClients()
    assert clients.spacing_seconds == 0.0
    active(clients, 1)
    assert clients.spacing_seconds == 0.0


def test_each_further_client_lets_messages_wait_a_little_longer() -> None:
    clients = ActiveClients()
    active(clients, 4)
    assert clients.spacing_seconds == pytest.approx(3 * SPACING_PER_CLIENT_SECONDS)


def test_a_thousand_clients_do_not_wait_longer_than_the_limit() -> None:
    clients = ActiveClients()
    active(clients, 1000)
    assert clients.spacing_seconds == MAX_SPACING_SECONDS


def test_a_client_counts_once_however_much_it_sends() -> None:
    clients = ActiveClients()
    (stream,) = active(clients, 1)
    stream.received(100.1)
    assert clients.count == 1


def test_a_client_that_sends_nothing_does_not_count_until_it_sends_again() -> None:
    clients = ActiveClients()
    quiet, busy = active(clients, 2)
    busy.received(100.0 + IDLE_AFTER_SECONDS)
    for stream in (quiet, busy):
        stream.check(100.1 + IDLE_AFTER_SECONDS)
    assert clients.count == 1
    quiet.received(103.0)
    assert clients.count == 2


def test_a_client_that_has_left_does_not_count() -> None:
    clients = ActiveClients()
    for stream in active(clients, 2):
        stream.close()
        stream.close()
    assert clients.count == 0
