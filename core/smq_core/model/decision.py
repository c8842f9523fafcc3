"""What the leader decided and why, as users see it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # every command of the client loads this module, and few need the entities
    from smq_core.model.entities import Micros, Reason


class DecisionAction(StrEnum):
    """What was decided. The first ones are the reasons of plans."""

    CREATE = "create"
    SPLIT = "split"
    MERGE = "merge"
    FAILOVER = "failover"
    DRAIN = "drain"
    ROLL = "roll"
    REBALANCE = "rebalance"
    MANUAL = "manual"
    SCHEMA = "schema"
    ACCEPT_LOSS = "accept loss"
    RECORD_LOSS = "record loss"
    RECOVER = "recover"
    REFUSED = "refused"
    TRIM = "trim"
    RETENTION = "retention"
    PAUSE_SCALING = "pause-scaling"
    RESUME_SCALING = "resume-scaling"
    SCALE_OUT = "scale out"
    SCALE_IN = "scale in"
    BROKER_ENDED = "broker ended"

    @classmethod
    def of(cls, reason: Reason) -> DecisionAction:
        """The action of a plan with this reason."""
        return cls(reason.value.lower())


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A decision and its reason. ``topic`` is empty and there are no segments if it is about brokers."""

    at: Micros
    topic: str
    action: DecisionAction
    segments: tuple[str, ...]
    reason: str
