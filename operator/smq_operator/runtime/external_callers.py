"""Which callers from outside count beside those of the platform, and who they are here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    """``audience`` is that of tokens that are meant for this release.

    ``identity_claim`` says who the caller is, and ``groups_claim`` which groups it is in. ``prefix`` comes before both,
    so that nobody is taken for a ServiceAccount or the owner of a static token.
    """

    issuer: str
    audience: str
    identity_claim: str = "sub"
    groups_claim: str = "groups"
    prefix: str = "oidc:"

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if not is_protected(self.issuer):
            raise ValueError(f"{self.issuer!r} is no https:// URL without a query")
        if not self.audience:
            raise ValueError("the issuer's tokens need an audience, which is this release's own")
        if not self.identity_claim:
            raise ValueError("a claim has to say who the caller is, such as sub")
        _check_prefix(self.prefix)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAuthoritySettings:
    """``ca_file`` has the authorities whose client certificates count, in PEM. ``prefix`` is as that of an issuer."""

    ca_file: Path
    prefix: str = "cert:"

    def __post_init__(self) -> None:
        """Raises ValueError."""
        _check_prefix(self.prefix)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalCallers:
    oidc: OidcSettings | None = None
    client_authority: ClientAuthoritySettings | None = None


def _check_prefix(prefix: str) -> None:
    if not prefix.isprintable() or not prefix.strip() or prefix.startswith("system:"):
        raise ValueError("the prefix is a text such as oidc:, and does not begin with system:")


def is_protected(url: str) -> bool:
    """Whether nobody on the way can change what is fetched there."""
    parts = urlsplit(url)
    encrypted = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    return encrypted and bool(parts.hostname) and not (parts.username or parts.query or parts.fragment)
