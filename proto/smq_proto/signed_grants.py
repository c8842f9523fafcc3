"""Signs and verifies grants with Ed25519 (RFC 8032). What is signed is a prefix and the bytes of the ``Grant``.

Keys are raw: 32 bytes each. The leader has the private one; brokers get the public ones when they log in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from google.protobuf.message import DecodeError

from smq_core.access.grants import Grant
from smq_core.access.quotas import NO_QUOTA, Quota
from smq_core.access.rights import Right
from smq_core.errors import InvalidRequest, PermissionDenied
from smq_core.model.entities import SECOND
from smq_proto.enums import RIGHT
from smq_proto.v1 import data_pb2 as pb

# A signature of a grant can be mistaken for that of nothing else.
_CONTEXT = b"smq-grant-v1:"


class GrantSigner:
    """``private_key`` is the leader's."""

    def __init__(self, private_key: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(private_key)

    @property
    def public_key(self) -> bytes:
        return self._key.public_key().public_bytes_raw()

    def sign(self, grant: Grant) -> pb.SignedGrant:
        message = pb.Grant(
            release=grant.release,
            identity=grant.identity,
            topic=grant.topic,
            uid=grant.uid,
            right=RIGHT.value(grant.right.value),
            expires_at=round(grant.expires_at * SECOND),
            quota=_quota_to_pb(grant.quota),
        ).SerializeToString(deterministic=True)
        return pb.SignedGrant(grant=message, signature=self._key.sign(_CONTEXT + message))


class GrantVerifier:
    """``public_keys`` are those of the leader: the present one, and former ones until what they signed has expired."""

    def __init__(self, public_keys: Sequence[bytes]) -> None:
        self._keys = [Ed25519PublicKey.from_public_bytes(key) for key in public_keys]

    def verify(self, signed: pb.SignedGrant) -> Grant:
        """Raises PermissionDenied if none of the keys signed it, InvalidRequest if it is something else."""
        if not any(_is_signed_by(key, signed) for key in self._keys):
            raise PermissionDenied("no leader of this release signed this grant")
        try:
            message = pb.Grant.FromString(signed.grant)
            right = Right(RIGHT.word(message.right))
        except (DecodeError, ValueError) as error:
            raise InvalidRequest(f"not a grant: {error}") from error
        return Grant(
            release=message.release,
            identity=message.identity,
            topic=message.topic,
            uid=message.uid,
            right=right,
            expires_at=message.expires_at / SECOND,
            quota=_quota_from_pb(message.quota),
        )


def new_signing_key() -> bytes:
    """A private key: 32 random bytes."""
    return Ed25519PrivateKey.generate().private_bytes_raw()


def _quota_to_pb(quota: Quota) -> pb.Quota | None:
    return None if quota == NO_QUOTA else pb.Quota(**asdict(quota))


def _quota_from_pb(message: pb.Quota) -> Quota:
    return Quota(**{field.name: value for field, value in message.ListFields()})


def _is_signed_by(key: Ed25519PublicKey, signed: pb.SignedGrant) -> bool:
    try:
        key.verify(signed.signature, _CONTEXT + signed.grant)
    except InvalidSignature:
        return False
    return True
