"""What all producers of a client share, so that neither threads nor connections grow with their number."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from smq.producing.lanes.lanes import ProducerLanes
from smq.producing.lanes.session import Session, SessionOwner
from smq.producing.runtime.outcome_worker import OutcomeWorker
from smq.producing.runtime.timers import Timers
from smq.producing.runtime.unreachable_reports import UnreachableReports
from smq.producing.seal_outcomes import SealOutcomeClient
from smq.transport.dialer import DIRECT, Dialer
from smq_core.model.entities import Segment
from smq_proto.v1 import data_pb2 as pb


class Lanes(Protocol):
    """Where the sessions of producers are. See :class:`ProducerLanes`."""

    def open_session(
        self,
        segment: Segment,
        *,
        topic: str,
        uid: str,
        schema: pa.Schema,
        hello: pb.ProducerHello,
        owner: SessionOwner,
        session: int,
        is_bulk: bool,
    ) -> Session: ...

    def close(self) -> None: ...


class ProducerRuntime:
    """``outcomes`` fetches seal outcomes."""

    def __init__(self, dialer: Dialer = DIRECT, lanes: Lanes | None = None) -> None:
        self.timers = Timers()
        self.outcomes = OutcomeWorker(lambda: SealOutcomeClient(dialer))
        self.unreachable = UnreachableReports()
        self.lanes: Lanes = lanes if lanes is not None else ProducerLanes(dialer, self.timers)

    def close(self) -> None:
        """Ends all threads and lanes. Close the producers first. Repeatable."""
        self.lanes.close()
        self.timers.close()
        self.outcomes.close()
        self.unreachable.close()
