"""One connection to a broker for one stream, which can be cut at once from any thread.

A write that is stuck on a stalled broker cannot be freed through Flight; shutting its TCP socket down frees it within a
millisecond. The socket is found among the process's own descriptors: the one that appears while the connection is
made. Where that is not possible, gRPC's keepalive frees it after two to three seconds.
"""

from __future__ import annotations

import contextlib
import socket
import threading

import pyarrow as pa
import pyarrow.flight as fl

from smq import sockets
from smq.network import Network
from smq_core.errors import Unavailable
from smq_proto.flight import from_flight

CONNECT_WITHIN = 1.0

# Pings need the broker's heartbeats: without frames from the other side they are too many by gRPC's own rules.
_KEEPALIVE = [
    ("grpc.keepalive_time_ms", 2000),
    ("grpc.keepalive_timeout_ms", 1000),
    ("grpc.http2.ping_timeout_ms", 1000),
    ("grpc.http2.max_pings_without_data", 0),
]
_connecting: dict[str, threading.Lock] = {}
_guard = threading.Lock()


class Channel:
    """A Flight client with its own TCP connection. ``address`` is host:port."""

    def __init__(self, address: str, client: fl.FlightClient, mine: list[socket.socket]) -> None:
        self.address = address
        self.client = client
        self._sockets = mine
        self._lock = threading.Lock()

    @staticmethod
    def open(address: str, network: Network) -> Channel:
        """Connects and makes sure that the broker answers. Raises Unavailable after CONNECT_WITHIN seconds."""
        first = network.first(address)
        with _guard:
            one_at_a_time = _connecting.setdefault(first, threading.Lock())
        if not one_at_a_time.acquire(timeout=CONNECT_WITHIN):
            raise Unavailable(f"the broker at {address} does not answer")
        try:
            peers = sockets.peers(first)
            before = sockets.to(peers)
            client = network.flight(address, _KEEPALIVE)
            try:
                list(client.list_actions(fl.FlightCallOptions(timeout=CONNECT_WITHIN)))
            except pa.ArrowNotImplementedError:
                pass  # it answers: that is enough
            except (pa.ArrowException, OSError) as error:
                sockets.shut(sockets.since(before, peers))
                client.close()
                raise from_flight(error) from None
            return Channel(address, client, sockets.since(before, peers))
        finally:
            one_at_a_time.release()

    def abort(self) -> None:
        """Cuts the connection: every call on it, also a stuck write, fails at once. Repeatable."""
        with self._lock:
            mine, self._sockets = self._sockets, []
        sockets.shut(mine)

    def close(self) -> None:
        """After the stream has ended."""
        with self._lock:
            mine, self._sockets = self._sockets, []
        for it in mine:
            it.close()
        with contextlib.suppress(pa.ArrowException, OSError):
            self.client.close()
