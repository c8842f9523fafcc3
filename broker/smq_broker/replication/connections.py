"""The connections of this broker, one to each broker that follows its segments."""

from __future__ import annotations

from smq_broker.replication.connection import TIMES, ReplicaConnection
from smq_broker.replication.lane_stream import ConnectFlight
from smq_broker.replication.message_spacing import ActiveClients
from smq_broker.replication.replica_session import ReplicaSession
from smq_broker.runtime.lock_order import BrokerLock
from smq_broker.runtime.threads import Task, ThreadSupervisor
from smq_core.model.entities import Replica
from smq_core.sessions.lanes import LaneTimes
from smq_storage.process.locks import make_lock


class ReplicaConnections:
    """Safe from many threads."""

    def __init__(
        self,
        incarnation: str,
        *,
        threads: ThreadSupervisor,
        clients: ActiveClients,
        connect_flight: ConnectFlight,
        times: LaneTimes = TIMES,
    ) -> None:
        self._incarnation = incarnation
        self._clients = clients
        self._threads = threads
        self._connect_flight = connect_flight
        self._times = times
        self._lock = make_lock(BrokerLock.STREAMS)
        self._connections: dict[Replica, ReplicaConnection] = {}

    def add(self, session: ReplicaSession) -> None:
        """Opens the session on the connection to its follower. Raises Unavailable if no more threads can start."""
        follower = session.follower
        with self._lock:
            connection = self._connections.get(follower)
            if connection is None or not connection.add(session):
                self._start(follower, session)

    def _start(self, follower: Replica, session: ReplicaSession) -> None:
        def run() -> None:
            connection.run()
            with self._lock:
                if self._connections.get(follower) is connection:
                    del self._connections[follower]

        connection = ReplicaConnection(
            follower,
            primary_incarnation=self._incarnation,
            threads=self._threads,
            clients=self._clients,
            connect_flight=self._connect_flight,
            times=self._times,
        )
        connection.add(session)
        self._threads.start(
            Task(kind="replication", run=run, subject=follower.broker, on_death=connection.fail_sessions)
        )
        self._connections[follower] = connection
