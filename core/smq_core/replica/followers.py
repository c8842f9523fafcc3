"""What a primary notes about its followers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Follower:
    """A follower as its primary sees it. ``sent`` is None while no stream is open. All but ``credit`` are offsets."""

    acked: int = 0
    sent: int | None = None
    sent_watermark: int = -1
    sent_chain_end: int = -1
    credit: int | None = None
    """In bytes."""
