"""The tokens of callers from outside that the leader verifies by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from smq_operator.runtime.external_callers import ExternalCallers
from smq_operator.security.identities.certificate_tokens import CertificateTokens
from smq_operator.security.identities.oidc.issuer_keys import IssuerKeys
from smq_operator.security.identities.oidc.oidc_tokens import OidcTokens
from smq_operator.security.identities.tokens import KindOfTokens


def external_tokens(callers: ExternalCallers, roots: Callable[[], bytes]) -> Sequence[KindOfTokens]:
    """Those that are set. ``roots`` returns the release's own bundle. Raises InvalidRequest."""
    found: list[KindOfTokens] = []
    if callers.oidc is not None:
        found.append(OidcTokens(callers.oidc, IssuerKeys(callers.oidc.issuer, time.monotonic)))
    if callers.client_authority is not None:
        found.append(CertificateTokens(callers.client_authority, roots, time.time))
    return found
