"""The shared streams of this broker, one to each broker that follows its segments."""

from __future__ import annotations

from smq_broker.replication.message_spacing import ActiveClients
from smq_broker.replication.shared_link import SharedLink
from smq_broker.replication.shared_stream import SharedReplicationStream
from smq_broker.replication.stream import ConnectFlight, connect
from smq_broker.runtime.lock_order import BrokerLock
from smq_broker.runtime.threads import Task, ThreadSupervisor
from smq_core.model.entities import Replica
from smq_storage.process.locks import make_lock


class SharedReplicationStreams:
    """Safe from many threads."""

    def __init__(
        self,
        incarnation: str,
        threads: ThreadSupervisor,
        clients: ActiveClients,
        connect_flight: ConnectFlight = connect,
    ) -> None:
        self._incarnation = incarnation
        self._clients = clients
        self._threads = threads
        self._connect_flight = connect_flight
        self._lock = make_lock(BrokerLock.STREAMS)
        self._streams: dict[Replica, SharedReplicationStream] = {}

    def add(self, link: SharedLink) -> None:
        """Puts the link on the stream to its follower's broker. Raises Unavailable if no more threads can start."""
        follower = link.state.follower
        with self._lock:
            stream = self._streams.get(follower)
            if stream is None or not stream.add(link):
                self._start(follower, link)

    def _start(self, follower: Replica, link: SharedLink) -> None:
        def run() -> None:
            stream.run()
            with self._lock:
                if self._streams.get(follower) is stream:
                    del self._streams[follower]

        stream = SharedReplicationStream(
            follower, self._incarnation, self._threads, self._clients, self._connect_flight
        )
        stream.add(link)
        self._threads.start(Task("shared-replication", run, follower.broker, on_death=stream.fail_links))
        self._streams[follower] = stream
