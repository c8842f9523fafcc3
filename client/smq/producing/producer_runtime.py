"""What all producers of a client share, so that neither threads nor connections grow with their number."""

from __future__ import annotations

from smq.producing.runtime.outcome_worker import OutcomeWorker
from smq.producing.runtime.timers import Timers
from smq.producing.runtime.unreachable_reports import UnreachableReports
from smq.producing.seal_outcomes import SealOutcomeClient
from smq.producing.streams.shared_streams import SharedStreams
from smq.transport.dialer import DIRECT, Dialer


class ProducerRuntime:
    """``outcomes`` fetches seal outcomes. ``shared_streams`` is None if each producer has its own streams."""

    def __init__(self, dialer: Dialer = DIRECT, *, share_streams: bool = True) -> None:
        self.timers = Timers()
        self.outcomes = OutcomeWorker(lambda: SealOutcomeClient(dialer))
        self.unreachable = UnreachableReports()
        self.shared_streams = SharedStreams(dialer, self.timers) if share_streams else None

    def close(self) -> None:
        """Ends all threads and streams. Close the producers first. Repeatable."""
        if self.shared_streams is not None:
            self.shared_streams.close()
        self.timers.close()
        self.outcomes.close()
        self.unreachable.close()
