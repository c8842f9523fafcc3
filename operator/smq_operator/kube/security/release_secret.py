"""The release's keys in a Secret, and its roots in a ConfigMap, which brokers and clients mount.

The first operator makes the Secret. Others of the release find it, and use the same keys.
"""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Mapping

import structlog

from smq_core.access.authority_rotation import CertificateLives
from smq_core.errors import Conflict, InvalidRequest, Unavailable
from smq_operator.kube.client.api import KubeApi
from smq_operator.kube.client.kinds import CONFIG_MAPS, SECRETS, Resource
from smq_operator.kube.security.given_authority import GivenAuthority, kube_errors
from smq_operator.security.authority.authorities import recovered
from smq_operator.security.authority.authority_set import AuthoritySet
from smq_operator.security.authority.certificate_authority import AuthorityKeys, CertificateAuthority
from smq_proto.signed_grants import GrantSigner, new_signing_key

log = structlog.get_logger(__name__)

ROOTS, AUTHORITIES, GRANT_KEY = "ca.crt", "authorities.json", "grants.key"


class ReleaseSecret:
    """See ``AuthorityStore``. ``name`` is that of the Secret; the ConfigMap is ``<name>-roots``.

    ``labels`` are those of the release. ``given`` is the Secret with the user's authority, if there is one.
    """

    def __init__(
        self,
        *,
        api: KubeApi,
        namespace: str,
        name: str,
        labels: Mapping[str, str],
        given: GivenAuthority | None = None,
        lives: CertificateLives | None = None,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._labels = dict(labels)
        self._given = given
        self._lives = lives or CertificateLives()
        self._version = ""
        """The resourceVersion of what was loaded last."""
        self.given_by = given.description if given is not None else ""

    async def open(self, now: float) -> tuple[AuthoritySet, bytes]:
        """The authorities and the key that signs grants, which are made if there are none.

        An authority that has expired is replaced. ``now`` is in seconds since the Unix epoch. Raises Unavailable, and
        InvalidRequest if the Secret is not whole.
        """
        while True:
            try:
                secret = await self._read() or await self._create(now)
                stored, grant_key = self._parse(secret)
                known = stored
                if now >= stored.rotation.signing.expires_at:
                    known = recovered(stored, await self.given(), now, self._lives)
                    await self.save(known)
                await self.publish(known.roots)
                return known, grant_key
            except Conflict:  # another operator of this release was first
                continue

    async def load(self) -> AuthoritySet:
        secret = await self._read()
        if secret is None:
            raise Unavailable(
                f"the Secret {self._name} in namespace {self._namespace} is gone: restore it. What it had stays in "
                "force until the next start of the operator, which makes new keys"
            )
        return self._parse(secret)[0]

    async def save(self, authorities: AuthoritySet) -> None:
        change = {
            "metadata": {"resourceVersion": self._version},
            "data": {AUTHORITIES: base64.b64encode(authorities.to_json()).decode()},
        }
        with kube_errors():
            secret = await self._api.patch(SECRETS, self._name, self._namespace, change)
        self._version = secret["metadata"]["resourceVersion"]

    async def given(self) -> AuthorityKeys | None:
        return await self._given.read() if self._given is not None else None

    async def _read(self) -> Resource | None:
        with kube_errors():
            secret = await self._api.find(SECRETS, self._name, self._namespace)
        self._version = secret["metadata"]["resourceVersion"] if secret is not None else ""
        return secret

    async def _create(self, now: float) -> Resource:
        release = str(uuid.uuid4())
        keys = await self.given() or CertificateAuthority.create(release, now=now, lives=self._lives).keys
        data = {AUTHORITIES: AuthoritySet.of(release, keys, now).to_json(), GRANT_KEY: new_signing_key()}
        encoded = {entry: base64.b64encode(value).decode() for entry, value in data.items()}
        body = {**self._resource(SECRETS.kind, self._name), "type": "Opaque", "data": encoded}
        with kube_errors():
            made = await self._api.create(SECRETS, body)
        log.info("security.created", secret=self._name, namespace=self._namespace)
        self._version = made["metadata"]["resourceVersion"]
        return made

    def _parse(self, secret: Resource) -> tuple[AuthoritySet, bytes]:
        data = secret.get("data") or {}
        try:
            document, grants = (base64.b64decode(data[entry], validate=True) for entry in (AUTHORITIES, GRANT_KEY))
            GrantSigner(grants)
            return AuthoritySet.parse(document), grants
        except (KeyError, ValueError, binascii.Error, InvalidRequest) as error:
            cause = error.message if isinstance(error, InvalidRequest) else f"{type(error).__name__}"
            raise InvalidRequest(
                f"the Secret {self._name} in namespace {self._namespace} does not have {AUTHORITIES} and {GRANT_KEY} "
                f"of a release ({cause}): restore it, or delete it, which makes new keys, so that brokers and clients "
                "have to be restarted"
            ) from None

    async def publish(self, roots: bytes) -> None:
        body = {**self._resource(CONFIG_MAPS.kind, f"{self._name}-roots"), "data": {ROOTS: roots.decode()}}
        name, bundle = f"{self._name}-roots", roots.decode()
        with kube_errors():
            known = await self._api.find(CONFIG_MAPS, name, self._namespace)
            if known is None:
                await self._api.create(CONFIG_MAPS, body)
            elif (known.get("data") or {}).get(ROOTS) != bundle:
                await self._api.patch(CONFIG_MAPS, name, self._namespace, {"data": {ROOTS: bundle}})

    def _resource(self, kind: str, name: str) -> Resource:
        metadata = {"name": name, "namespace": self._namespace, "labels": self._labels}
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata}
