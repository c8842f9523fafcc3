"""A process's own certificate, with what it needs to verify others."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """``chain`` and ``roots`` are certificates in PEM, ``key`` is the private key in PEM.

    Times are seconds since the Unix epoch.
    """

    chain: bytes
    key: bytes = field(repr=False)
    roots: bytes
    issued_at: float
    expires_at: float

    def renew_at(self, part: float = 0.5) -> float:
        """When to fetch the next one: after this part of its life, so that an outage of the leader does no harm."""
        return self.issued_at + (self.expires_at - self.issued_at) * part
