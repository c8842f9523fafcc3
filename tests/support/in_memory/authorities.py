"""The authorities of a release in memory, for any number of operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from smq_core.access.authority_rotation import CertificateLives
from smq_core.errors import Conflict, SmqError
from smq_operator.security.authority.authorities import Authorities
from smq_operator.security.authority.authority_set import AuthoritySet
from smq_operator.security.authority.certificate_authority import AuthorityKeys, CertificateAuthority


@dataclass
class StoredAuthorities:
    """What all operators of the release read and write. ``failure`` is raised by each call that needs it."""

    known: AuthoritySet
    version: int = 0
    published: bytes = b""
    given: AuthorityKeys | None = None
    failure: SmqError | None = None
    saved: list[AuthoritySet] = field(default_factory=list)


class MemoryAuthorities:
    """See ``AuthorityStore``: that of one operator."""

    def __init__(self, stored: StoredAuthorities, given_by: str = "") -> None:
        self._stored = stored
        self._version = 0
        self.given_by = given_by

    async def load(self) -> AuthoritySet:
        if self._stored.failure is not None:
            raise self._stored.failure
        self._version = self._stored.version
        return AuthoritySet.parse(self._stored.known.to_json())

    async def save(self, authorities: AuthoritySet) -> None:
        if self._version != self._stored.version:
            raise Conflict("another one was first")
        self._stored.known, self._stored.version = authorities, self._version + 1
        self._version += 1
        self._stored.saved.append(authorities)

    async def publish(self, roots: bytes) -> None:
        self._stored.published = roots

    async def given(self) -> AuthorityKeys | None:
        if self.given_by and self._stored.given is None:
            raise SmqError("the Secret is not there")
        return self._stored.given


def own_authorities(
    clock: Callable[[], float], release: str = "r1", lives: CertificateLives | None = None
) -> tuple[Authorities, StoredAuthorities]:
    """Those of a new release with one authority, as its only operator knows them."""
    lives = lives or CertificateLives()
    keys = CertificateAuthority.create(release, now=clock(), lives=lives).keys
    stored = StoredAuthorities(AuthoritySet.of(release, keys, clock()))
    return Authorities(MemoryAuthorities(stored), stored.known, lives, clock), stored
