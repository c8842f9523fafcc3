"""The authority that a user gives to a release, in a Secret as cert-manager writes it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from contextlib import contextmanager

from smq_core.errors import Conflict, InvalidRequest, Unavailable
from smq_operator.kube.client.api import KubeApi
from smq_operator.kube.client.errors import KubeError, ResourceConflict
from smq_operator.kube.client.kinds import SECRETS
from smq_operator.security.authority.certificate_authority import AuthorityKeys, given_authority

CERTIFICATE, KEY = "tls.crt", "tls.key"


class GivenAuthority:
    """``name`` is that of the Secret. It is read anew each time, because it is renewed."""

    def __init__(self, api: KubeApi, namespace: str, name: str) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self.description = f"the Secret {name} in namespace {namespace}"

    async def read(self) -> AuthorityKeys:
        """Raises Unavailable, and InvalidRequest if it has no authority."""
        with kube_errors():
            secret = await self._api.find(SECRETS, self._name, self._namespace)
        if secret is None:
            raise Unavailable(
                f"{self.description}, which security.caSecretName names, is not there: make it, for example by a "
                "Certificate of cert-manager with isCA: true"
            )
        data = secret.get("data") or {}
        try:
            return given_authority(*(base64.b64decode(data[entry], validate=True) for entry in (CERTIFICATE, KEY)))
        except (KeyError, binascii.Error):
            raise InvalidRequest(f"{self.description} does not have {CERTIFICATE} and {KEY} of an authority") from None
        except InvalidRequest as error:
            raise InvalidRequest(f"{self.description} has no authority that can be used: {error.message}") from None


@contextmanager
def kube_errors() -> Iterator[None]:
    """Turns errors of the Kubernetes API into SmqErrors."""
    try:
        yield
    except ResourceConflict as error:
        raise Conflict(f"another operator of this release was first: {error.message}") from None
    except KubeError as error:
        raise Unavailable(f"the release's keys cannot be read or written now: {error.message}") from None
