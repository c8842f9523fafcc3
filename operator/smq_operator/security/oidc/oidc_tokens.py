"""Recognises callers by tokens of an OIDC issuer: JSON Web Tokens (RFC 7519, RFC 8725), which the leader verifies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jwt
from jwt.exceptions import PyJWTError

from smq_core.errors import InvalidRequest, Unauthenticated
from smq_core.model.names import check_labels
from smq_operator.runtime.external_callers import OidcSettings
from smq_operator.security.callers import Caller
from smq_operator.security.oidc.issuer_keys import IssuerKeys
from smq_operator.security.tokens import MAX_IDENTITY_LENGTH

METHOD = "OIDC"
# Clocks of issuer and leader differ.
LEEWAY_SECONDS = 30.0
REQUIRED_CLAIMS = ("exp", "iss", "sub", "aud")
# More would make each decision long.
MAX_GROUPS = 200


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
        identity = settings.prefix + name
        try:
            check_labels([("the identity of a token", identity)], MAX_IDENTITY_LENGTH)
            check_labels([("a group of a token", settings.prefix + it) for it in groups], MAX_IDENTITY_LENGTH)
        except InvalidRequest as error:
            raise Unauthenticated(error.message) from None
        return Caller(
            identity=identity,
            groups=tuple(settings.prefix + it for it in groups),
            method=METHOD,
            expires_at=float(claims["exp"]),
        )
