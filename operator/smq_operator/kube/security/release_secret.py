"""The release's keys in a Secret, and its roots in a ConfigMap, which brokers and clients mount.

The first operator makes the Secret. Others of the release find it, and use the same keys.
"""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

from smq_core.errors import InvalidRequest
from smq_operator.kube.client.api import KubeApi
from smq_operator.kube.client.errors import AlreadyExists
from smq_operator.kube.client.kinds import CONFIG_MAPS, SECRETS, Resource
from smq_operator.security.certificate_authority import CertificateAuthority
from smq_proto.signed_grants import GrantSigner, new_signing_key

log = structlog.get_logger(__name__)

ROOTS, AUTHORITY_KEY, GRANT_KEY = "ca.crt", "ca.key", "grants.key"


@dataclass(frozen=True, slots=True)
class ReleaseKeys:
    """What signs in this release."""

    authority: CertificateAuthority = field(repr=False)
    grants: GrantSigner = field(repr=False)


class ReleaseSecret:
    """``name`` is that of the Secret; the ConfigMap is ``<name>-roots``. ``labels`` are those of the release."""

    def __init__(self, api: KubeApi, namespace: str, name: str, labels: Mapping[str, str]) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._labels = dict(labels)

    async def load(self, now: float) -> ReleaseKeys:
        """The keys, which are made if there are none. ``now`` is in seconds since the Unix epoch.

        Raises KubeError, and InvalidRequest if the Secret is not whole.
        """
        secret = await self._api.find(SECRETS, self._name, self._namespace)
        if secret is None:
            secret = await self._create(now)
        keys = self._parse(secret)
        await self._publish_roots(keys.authority.roots)
        return keys

    async def _create(self, now: float) -> Resource:
        chain, key = CertificateAuthority.create(str(uuid.uuid4()), now=now).to_pem()
        data = {ROOTS: chain, AUTHORITY_KEY: key, GRANT_KEY: new_signing_key()}
        encoded = {entry: base64.b64encode(value).decode() for entry, value in data.items()}
        body = {**self._resource(SECRETS.kind, self._name), "type": "Opaque", "data": encoded}
        try:
            made = await self._api.create(SECRETS, body)
        except AlreadyExists:  # another operator of this release was first
            return await self._api.get(SECRETS, self._name, self._namespace)
        log.info("security.created", secret=self._name, namespace=self._namespace)
        return made

    def _parse(self, secret: Resource) -> ReleaseKeys:
        data = secret.get("data") or {}
        try:
            chain, key, grants = (
                base64.b64decode(data[entry], validate=True) for entry in (ROOTS, AUTHORITY_KEY, GRANT_KEY)
            )
            return ReleaseKeys(CertificateAuthority(chain, key), GrantSigner(grants))
        except (KeyError, ValueError, binascii.Error, InvalidRequest) as error:
            cause = error.message if isinstance(error, InvalidRequest) else f"{type(error).__name__}"
            raise InvalidRequest(
                f"the Secret {self._name} in namespace {self._namespace} does not have {ROOTS}, {AUTHORITY_KEY} and "
                f"{GRANT_KEY} of a release ({cause}): restore it, or delete it, which makes new keys, so that brokers "
                "and clients have to be restarted"
            ) from None

    async def _publish_roots(self, roots: bytes) -> None:
        body = {**self._resource(CONFIG_MAPS.kind, f"{self._name}-roots"), "data": {ROOTS: roots.decode()}}
        known = await self._api.find(CONFIG_MAPS, f"{self._name}-roots", self._namespace)
        if known is None:
            try:
                await self._api.create(CONFIG_MAPS, body)
            except AlreadyExists:
                known = await self._api.get(CONFIG_MAPS, f"{self._name}-roots", self._namespace)
        if known is not None and (known.get("data") or {}).get(ROOTS) != roots.decode():
            await self._api.patch(
                CONFIG_MAPS, f"{self._name}-roots", self._namespace, {"data": {ROOTS: roots.decode()}}
            )

    def _resource(self, kind: str, name: str) -> Resource:
        metadata = {"name": name, "namespace": self._namespace, "labels": self._labels}
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata}
