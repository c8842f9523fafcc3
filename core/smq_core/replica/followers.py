"""What a primary notes about its followers, and about the acks that wait for them."""

from __future__ import annotations

from dataclasses import dataclass

from smq_core.replica.log_entries import Ack


@dataclass(slots=True)
class Follower:
    """A follower as its primary sees it. ``sent`` is None while no stream is open. All but ``credit`` are offsets."""

    acked: int = 0
    sent: int | None = None
    sent_watermark: int = -1
    sent_chain_end: int = -1
    credit: int | None = None
    """In bytes."""


@dataclass(frozen=True, slots=True)
class PendingAck:
    """An ack that is due once the watermark reaches ``end``."""

    end: int
    ack: Ack
