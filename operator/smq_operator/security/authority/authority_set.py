"""All authorities of a release with their keys, as one document, which is kept where the platform keeps secrets."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from cryptography.hazmat.primitives import hashes

from smq_core.access.authority_rotation import Authority, AuthorityPhase, CertificateLives, Rotation
from smq_core.errors import InvalidRequest
from smq_operator.security.authority.certificate_authority import (
    CLOCK_SKEW_SECONDS,
    AuthorityKeys,
    CertificateAuthority,
    first_certificate,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthoritySet:
    """``keys`` has those of each authority, by its id. One that is retired has no private key any more."""

    release: str
    rotation: Rotation
    keys: Mapping[str, AuthorityKeys] = field(repr=False)

    @classmethod
    def of(cls, release: str, keys: AuthorityKeys, now: float) -> AuthoritySet:
        """A release with one authority. ``now`` is in seconds since the Unix epoch."""
        signing = replace(_introduced(keys, now), phase=AuthorityPhase.SIGNING)
        return cls(release=release, rotation=Rotation([signing]), keys={signing.id: keys})

    @property
    def roots(self) -> bytes:
        """The bundle that everybody trusts, in PEM."""
        return b"".join(self.keys[it.id].trusted for it in self.rotation.authorities)

    @property
    def id(self) -> str:
        """Another one whenever another bundle is trusted, or another authority signs."""
        digest = hashlib.sha256(self.roots + self.rotation.signing.id.encode())
        return digest.hexdigest()[:16]

    def signing(self) -> CertificateAuthority:
        return CertificateAuthority(self.release, self.keys[self.rotation.signing.id], self.roots)

    def knows(self, keys: AuthorityKeys) -> bool:
        return _id_of(keys) in self.keys

    def introduce(self, keys: AuthorityKeys, now: float) -> AuthoritySet:
        """``keys`` are those of a new authority."""
        new = _introduced(keys, now)
        return self._with(self.rotation.introduce(new), {**self.keys, new.id: keys})

    def introduce_own(self, now: float, lives: CertificateLives) -> AuthoritySet:
        """The same with an authority that is made now."""
        own = CertificateAuthority.create(self.release, now=now, lives=lives, former=self.signing())
        return self.introduce(own.keys, now)

    def advance(self, now: float, lives: CertificateLives, brokers_behind: Collection[str]) -> AuthoritySet:
        """See ``Rotation.advance``."""
        rotation = self.rotation.advance(now, lives, brokers_behind)
        return self if rotation is self.rotation else self._with(rotation, self.keys)

    def _with(self, rotation: Rotation, known: Mapping[str, AuthorityKeys]) -> AuthoritySet:
        keys = {
            it.id: replace(known[it.id], key=b"") if it.phase is AuthorityPhase.RETIRED else known[it.id]
            for it in rotation.authorities
        }
        return AuthoritySet(release=self.release, rotation=rotation, keys=keys)

    def to_json(self) -> bytes:
        authorities = [
            {
                "phase": it.phase.value,
                "since": it.since,
                "certificate": self.keys[it.id].chain.decode(),
                "key": self.keys[it.id].key.decode(),
                "crossCertificate": self.keys[it.id].cross.decode(),
            }
            for it in self.rotation.authorities
        ]
        return json.dumps({"release": self.release, "authorities": authorities}, indent=1).encode()

    @classmethod
    def parse(cls, document: bytes) -> AuthoritySet:
        """Raises InvalidRequest if it is none. No key is in the message."""
        try:
            fields = json.loads(document)
            authorities, keys = [], {}
            for it in fields["authorities"]:
                found = AuthorityKeys(
                    chain=it["certificate"].encode(), key=it["key"].encode(), cross=it["crossCertificate"].encode()
                )
                phase, since = AuthorityPhase(it["phase"]), float(it["since"])
                authority = replace(_introduced(found, since), phase=phase)
                authorities.append(authority)
                keys[authority.id] = found
            made = cls(release=str(fields["release"]), rotation=Rotation(authorities), keys=keys)
            made.signing()
        except (ValueError, LookupError, TypeError, AttributeError, StopIteration) as error:
            raise InvalidRequest(f"these are no authorities of a release: {type(error).__name__}") from None
        return made


def _introduced(keys: AuthorityKeys, since: float) -> Authority:
    certificate = first_certificate(keys.chain)
    return Authority(
        id=_id_of(keys),
        phase=AuthorityPhase.INTRODUCED,
        since=since,
        issued_at=certificate.not_valid_before_utc.timestamp() + CLOCK_SKEW_SECONDS,
        expires_at=certificate.not_valid_after_utc.timestamp(),
    )


def _id_of(keys: AuthorityKeys) -> str:
    return first_certificate(keys.chain).fingerprint(hashes.SHA256()).hex()[:16]
