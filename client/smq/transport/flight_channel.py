"""A connection to a broker for a single stream, which any thread can cut at once.

Flight cannot free a write that is stuck on a stalled broker. Shutting down the TCP socket frees it within a
millisecond. The socket is the one among the process's descriptors that appears while the connection is made. If it is
not found, gRPC's keepalive frees the write after two to three seconds.
"""

from __future__ import annotations

import contextlib
import socket
import time

import pyarrow as pa
import pyarrow.flight as fl

from smq.lock_order import ClientLock
from smq.transport import sockets
from smq.transport.dialer import Dialer
from smq_core.errors import Unreachable
from smq_core.model.entities import Replica
from smq_proto.flight import from_flight
from smq_storage.process.locks import make_lock

CONNECT_TIMEOUT_SECONDS = 1.0

# These pings rely on the broker's heartbeats: gRPC limits pings while the other side sends no frames.
_KEEPALIVE = [
    ("grpc.keepalive_time_ms", 2000),
    ("grpc.keepalive_timeout_ms", 1000),
    ("grpc.http2.ping_timeout_ms", 1000),
    ("grpc.http2.max_pings_without_data", 0),
]


class _ConnectQueue:
    """Those who connect to one address, one after the other."""

    def __init__(self) -> None:
        self._lock = make_lock(ClientLock.CONNECT_QUEUE)
        self._connected_at = float("-inf")

    def enter(self) -> bool:
        """Waits for its turn. False if nobody could connect for CONNECT_TIMEOUT_SECONDS.

        Many who begin at once wait for longer than that, although the broker answers.
        """
        while not self._lock.acquire(timeout=CONNECT_TIMEOUT_SECONDS):
            if time.monotonic() - self._connected_at > CONNECT_TIMEOUT_SECONDS:
                return False
        return True

    def leave(self, connected: bool) -> None:
        if connected:
            self._connected_at = time.monotonic()
        self._lock.release()


_queues: dict[str, _ConnectQueue] = {}
_queues_guard = make_lock()


class FlightChannel:
    """A Flight client with its own TCP connection."""

    def __init__(self, client: fl.FlightClient, own_sockets: list[socket.socket]) -> None:
        self.client = client
        self._sockets = own_sockets
        self._lock = make_lock()

    @staticmethod
    def open(replica: Replica, dialer: Dialer) -> FlightChannel:
        """Connects and checks that the broker answers. Raises Unreachable after CONNECT_TIMEOUT_SECONDS.

        In a secure release it also raises Unauthenticated and Unavailable, if the leader gives no certificate.
        """
        dialer.prepare()  # others who connect to this broker do not wait for the leader
        address = replica.address
        first_hop = dialer.first_hop(address)
        with _queues_guard:
            queue = _queues.setdefault(first_hop, _ConnectQueue())
        if not queue.enter():
            raise Unreachable(f"the broker at {address} does not answer")
        connected = False
        try:
            peer_addresses = sockets.peer_addresses(first_hop)
            before = sockets.connections_to(peer_addresses)
            client = dialer.flight(replica, _KEEPALIVE)
            try:
                list(client.list_actions(fl.FlightCallOptions(timeout=CONNECT_TIMEOUT_SECONDS)))
            except pa.ArrowNotImplementedError:
                pass  # the broker answered, which is enough
            except (pa.ArrowException, OSError) as error:
                sockets.shut_down(sockets.new_connections(before, peer_addresses))
                client.close()
                raise from_flight(error) from None
            connected = True
            return FlightChannel(client, sockets.new_connections(before, peer_addresses))
        finally:
            queue.leave(connected)

    def abort(self) -> None:
        """Cuts the connection, so that every call on it, even a stuck write, fails at once. Repeatable."""
        with self._lock:
            own_sockets, self._sockets = self._sockets, []
        sockets.shut_down(own_sockets)

    def close(self) -> None:
        """Closes the connection after the stream has ended."""
        with self._lock:
            own_sockets, self._sockets = self._sockets, []
        for it in own_sockets:
            it.close()
        with contextlib.suppress(pa.ArrowException, OSError):
            self.client.close()
