"""Whether this process leads and can answer requests, and otherwise why not."""

from __future__ import annotations

from dataclasses import dataclass

from smq_core.errors import NotLeader, Unavailable


@dataclass(slots=True)
class Readiness:
    """Shared by the gRPC services, the probe /readyz, and whoever starts, elects or stops the leader."""

    not_ready_reason: str = ""
    """Why no request can be answered now; empty when this leader leads."""
    leader_address: str = ""
    """The address of the leader if another process leads."""
    standby_reason: str = ""
    """Why this process does not lead although nothing is wrong with it. Its readiness probe succeeds."""

    @property
    def leads(self) -> bool:
        return not (self.leader_address or self.standby_reason or self.not_ready_reason)

    def require_leadership(self) -> None:
        """Raises NotLeader (with the leader's address) or Unavailable while this process does not lead."""
        if self.leader_address:
            raise NotLeader(
                f"this operator is not the leader; connect to {self.leader_address}", leader=self.leader_address
            )
        if self.standby_reason:
            raise NotLeader(f"this operator is not the leader: {self.standby_reason}", leader="")
        if self.not_ready_reason:
            raise Unavailable(f"the leader is not ready: {self.not_ready_reason}")

    def set_leading(self) -> None:
        """From now on requests are answered."""
        self.not_ready_reason = self.standby_reason = self.leader_address = ""

    def set_not_ready(self, reason: str) -> None:
        self.not_ready_reason = reason
