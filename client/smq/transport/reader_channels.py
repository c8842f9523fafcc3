"""The connections for reading: one to each broker, which all readers of a topic in this client share.

A connection costs its process and the broker some milliseconds and a round trip, and more when both are busy. A hundred
consumers that began at once with their own connections kept two cores busy for ten seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from smq.lock_order import ClientLock
from smq.transport.dialer import Dialer
from smq.transport.flight_channel import FlightChannel
from smq_core.errors import SmqError
from smq_core.model.entities import Replica
from smq_storage.process.locks import make_lock

# The time after which a connection is cut if a reader gets no answer and no other one gets a frame.
UNRESPONSIVE_AFTER_SECONDS = 2.0


class SharedChannel:
    """One connection, with the number of its readers. Made by :class:`ReaderChannels`."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.readers = 0
        self.is_broken = False
        """Whoever comes next gets another connection."""
        self._connecting = make_lock(ClientLock.CONNECTING)
        self._channel: FlightChannel | None = None
        self._failure: SmqError | None = None
        self._frame_at = time.monotonic()

    def connect(self, open_channel: Callable[[], FlightChannel]) -> FlightChannel:
        """The first one connects, others wait for it. Raises what it raises, then, to all of them."""
        with self._connecting:
            if self._failure is not None:
                raise self._failure
            if self._channel is None:
                try:
                    self._channel = open_channel()
                except SmqError as error:
                    self._failure, self.is_broken = error, True
                    raise
                self._frame_at = time.monotonic()
            return self._channel

    def got_frame(self, now: float) -> None:
        self._frame_at = now

    def cut_if_unresponsive(self, now: float) -> None:
        """Cuts the connection, with all that is read over it, unless some reader has got a frame of late."""
        channel = self._channel
        if channel is not None and now - self._frame_at > UNRESPONSIVE_AFTER_SECONDS:
            self.is_broken = True
            channel.abort()

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()


class ReaderChannels:
    """Safe from many threads. A connection is closed when its last reader has ended.

    ``open_channel`` connects to a replica's broker, and raises SmqError.
    """

    def __init__(
        self, topic: str, dialer: Dialer, open_channel: Callable[[Replica, Dialer], FlightChannel] = FlightChannel.open
    ) -> None:
        self._topic = topic
        self._dialer = dialer
        self._open_channel = open_channel
        self._lock = make_lock()
        self._channels: dict[Replica, SharedChannel] = {}

    def acquire(self, replica: Replica) -> SharedChannel:
        """The connection to its broker, for one more reader; ``release`` it. ``connect`` it before it is used."""
        with self._lock:
            shared = self._channels.get(replica)
            if shared is None or shared.is_broken:
                shared = self._channels[replica] = SharedChannel(replica)
            shared.readers += 1
            return shared

    def connect(self, shared: SharedChannel) -> FlightChannel:
        """Connects, unless another reader has. Raises Unreachable, and what a release says that refuses this client."""
        channel = shared.connect(lambda: self._open_channel(shared.replica, self._dialer))
        self._dialer.present(channel.client, self._topic)
        return channel

    def recover(self, error: SmqError, shared: SharedChannel, channel: FlightChannel) -> SmqError | None:
        """What is to be done after the broker has ended a stream by this error; see :meth:`Dialer.recover`."""
        failure = self._dialer.recover(error, channel.client, self._topic)
        if failure is None and self._dialer.is_outdated(channel.client):
            shared.is_broken = True
        return failure

    def release(self, shared: SharedChannel) -> None:
        """One reader less."""
        with self._lock:
            shared.readers -= 1
            unused = shared.readers == 0
            if unused and self._channels.get(shared.replica) is shared:
                del self._channels[shared.replica]
        if unused:
            shared.close()
