"""A primary's link to one follower of a segment: over a shared stream, or over a separate one while batches are large.

Small messages of all segments share a stream, because each message costs a hundred times what its bytes do. A large one
would hold up the others there. So a segment with much to send moves to a separate stream, and comes back when it has
sent only small messages for a while.
"""

from __future__ import annotations

from collections.abc import Callable

from smq_broker.replication.link_state import LinkState
from smq_broker.replication.own_stream import OwnReplicationStream
from smq_broker.replication.shared_link import SharedLink
from smq_broker.replication.shared_streams import SharedReplicationStreams
from smq_broker.replication.stream import ConnectFlight, connect
from smq_broker.runtime.threads import Task, ThreadSupervisor
from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.errors import Unavailable
from smq_core.model.entities import Replica

# How long a segment stays on the shared stream if its own threads cannot be started.
RETRY_SECONDS = 1.0


class FollowerLink:
    """``on_fenced`` is called when the follower replies that it is fenced. ``on_death`` is called when a thread of the
    link has died for good, so that nothing is replicated any more.
    """

    def __init__(
        self,
        hosted: HostedSegment,
        follower: Replica,
        on_fenced: Callable[[HostedSegment], None],
        on_death: Callable[[], None],
        *,
        streams: SharedReplicationStreams,
        threads: ThreadSupervisor,
        connect_flight: ConnectFlight = connect,
    ) -> None:
        self._hosted = hosted
        self._follower = follower
        self._on_death = on_death
        self._streams = streams
        self._threads = threads
        self._state = LinkState(hosted, follower)
        self._own = OwnReplicationStream(self._state, on_fenced, threads, connect_flight)
        self._shared = SharedLink(self._state, lambda: on_fenced(hosted), self._leave_shared_stream, on_death)
        self._current: SharedLink | OwnReplicationStream = self._shared

    def start(self) -> None:
        """Replicates from now on, until the segment is fenced. Raises Unavailable if there can be no more threads."""
        self._streams.add(self._shared)

    @property
    def incarnation(self) -> str:
        return self._state.incarnation

    def unresponsive(self) -> bool:
        return self._current.unresponsive()

    def notify(self, *, grown: bool, progressed: bool, sends_now: bool) -> None:
        self._current.notify(grown=grown, progressed=progressed, sends_now=sends_now)

    def can_send_now(self) -> bool:
        return self._current.can_send_now()

    def send_now(self) -> None:
        self._current.send_now()

    def _leave_shared_stream(self) -> None:
        try:
            self._start_own_stream()
        except Unavailable:
            self._current = self._shared
            self._shared.share_for(RETRY_SECONDS)
            self._streams.add(self._shared)

    def _start_own_stream(self) -> None:
        with self._hosted as machine:
            machine.follower_disconnected(self.incarnation)
            self._current = self._own
        name = f"{self._hosted.name}-{self._follower.broker}"
        self._threads.start(Task("replication", self._run_own_stream, name, on_death=self._on_death))

    def _run_own_stream(self) -> None:
        self._own.run()
        if self._state.is_wanted:
            self._current = self._shared
            self._streams.add(self._shared)
