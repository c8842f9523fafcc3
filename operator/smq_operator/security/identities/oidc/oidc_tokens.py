"""Recognises callers by tokens of an OIDC issuer: JSON Web Tokens (RFC 7519, RFC 8725), which the leader verifies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jwt
from jwt.exceptions import PyJWTError

from smq_core.errors import Unauthenticated
from smq_operator.runtime.external_callers import OidcSettings
from smq_operator.security.callers import Caller
from smq_operator.security.identities.external_caller import LEEWAY_SECONDS, MAX_GROUPS, external_caller
from smq_operator.security.identities.oidc.issuer_keys import IssuerKeys

METHOD = "OIDC"
REQUIRED_CLAIMS = ("exp", "iss", "sub", "aud")


class OidcTokens:
    """Use it on the event loop."""

    def __init__(self, settings: OidcSettings, keys: IssuerKeys) -> None:
        self._settings = settings
        self._keys = keys

    def recognises(self, token: str) -> bool:
        """Whether the token says that it is one of this issuer. Nothing is verified yet."""
        try:
            claims = jwt.decode(token, options={"verify_signature": False})
        except (PyJWTError, ValueError, RecursionError):
            return False
        return claims.get("iss") == self._settings.issuer

    async def verify(self, token: str) -> Caller:
        """Raises Unauthenticated, and Unavailable while the issuer does not answer and nothing is known of it."""
        settings = self._settings
        try:
            key_id = jwt.get_unverified_header(token).get("kid", "")
            key = await self._keys.find(str(key_id))
            claims = jwt.decode(
                token,
                key.key,
                algorithms=list(key.algorithms),
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": list(REQUIRED_CLAIMS)},
            )
        except (PyJWTError, ValueError) as error:
            raise Unauthenticated(
                f"this token of {settings.issuer} does not count here: {error}. It has to be one for the audience "
                f"{settings.audience}"
            ) from None
        return self._caller(claims)

    def _caller(self, claims: Mapping[str, Any]) -> Caller:
        settings = self._settings
        name = claims.get(settings.identity_claim)
        if not isinstance(name, str) or not name:
            raise Unauthenticated(f"this token has no claim {settings.identity_claim}, which says whose it is")
        if settings.identity_claim == "email" and claims.get("email_verified") is not True:
            raise Unauthenticated("the issuer has not verified the email address in this token")
        groups = claims.get(settings.groups_claim) or []
        groups = [groups] if isinstance(groups, str) else groups
        if not isinstance(groups, list) or not all(isinstance(it, str) for it in groups) or len(groups) > MAX_GROUPS:
            raise Unauthenticated(f"the claim {settings.groups_claim} is no list of up to {MAX_GROUPS} groups")
        identity, labels = ("the identity of a token", name), [("a group of a token", it) for it in groups]
        return external_caller(settings.prefix, identity, labels, method=METHOD, expires_at=float(claims["exp"]))
