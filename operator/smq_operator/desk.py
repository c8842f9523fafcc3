"""What the parts of the gRPC service share."""

from __future__ import annotations

from dataclasses import dataclass, field

from smq_core.errors import NotLeader, Unavailable
from smq_operator.calls import Brokers
from smq_operator.deaf import Deaf
from smq_operator.doubts import Doubts
from smq_operator.endings import Endings
from smq_operator.groups import Groups
from smq_operator.loop import LeaderLoop
from smq_operator.orphans import Orphans
from smq_proto.v1 import data_pb2 as pb
from smq_storage.store import StoreSettings


@dataclass(slots=True)
class Desk:
    loop: LeaderLoop
    brokers: Brokers
    doubts: Doubts
    groups: Groups
    orphans: Orphans
    deaf: Deaf
    endings: Endings
    store_settings: StoreSettings
    not_ready: str = ""
    """Why nothing can be answered now; empty when this leader leads."""
    leader: str = ""
    """The address of the leader, when it is another process."""
    standby: str = ""
    """Why this process does not lead, though nothing is wrong with it: its probe is answered."""
    located: dict[str, tuple[object, pb.LocateReply]] = field(default_factory=dict)
    """By topic: the last reply to Locate and which layout it tells."""

    def must_lead(self) -> None:
        """Raises NotLeader (with the leader's address) or Unavailable while this process does not lead."""
        if self.leader:
            raise NotLeader(f"this is not the leader: ask {self.leader}", leader=self.leader)
        if self.standby:
            raise NotLeader(f"this is not the leader: {self.standby}", leader="")
        if self.not_ready:
            raise Unavailable(f"the leader is not ready: {self.not_ready}")
