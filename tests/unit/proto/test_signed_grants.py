from __future__ import annotations

import pytest

from smq_core.access.grants import Grant
from smq_core.access.rights import Right
from smq_core.errors import InvalidRequest, PermissionDenied
from smq_proto.signed_grants import GrantSigner, GrantVerifier, new_signing_key
from smq_proto.v1 import data_pb2 as pb

GRANT = Grant(release="r", identity="alice", topic="travel/flights", uid="u", right=Right.CONSUME, expires_at=1234.5)


def test_a_signed_grant_is_verified_by_one_of_the_keys() -> None:
    signer, other = GrantSigner(new_signing_key()), GrantSigner(new_signing_key())
    assert GrantVerifier([other.public_key, signer.public_key]).verify(signer.sign(GRANT)) == GRANT


def test_another_key_is_refused() -> None:
    with pytest.raises(PermissionDenied, match="no leader of this release signed"):
        GrantVerifier([GrantSigner(new_signing_key()).public_key]).verify(GrantSigner(new_signing_key()).sign(GRANT))


def test_each_changed_bit_is_refused() -> None:
    signer = GrantSigner(new_signing_key())
    signed, verifier = signer.sign(GRANT), GrantVerifier([signer.public_key])
    for place in range(len(signed.grant) * 8):
        changed = bytearray(signed.grant)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises(PermissionDenied):
            verifier.verify(pb.SignedGrant(grant=bytes(changed), signature=signed.signature))
    for signature in (b"", b"x" * 64, signed.signature[:-1]):
        with pytest.raises(PermissionDenied):
            verifier.verify(pb.SignedGrant(grant=signed.grant, signature=signature))


def test_a_signature_of_bytes_that_are_no_grant_is_refused() -> None:
    key = new_signing_key()
    signer = GrantSigner(key)
    for body in (b"\xff", pb.Grant(identity="alice").SerializeToString()):
        signature = signer._key.sign(b"smq-grant-v1:" + body)
        with pytest.raises(InvalidRequest):
            GrantVerifier([signer.public_key]).verify(pb.SignedGrant(grant=body, signature=signature))


def test_the_private_key_is_not_shown() -> None:
    key = new_signing_key()
    assert key.hex() not in repr(GrantSigner(key)) and repr(key) not in repr(vars(GrantSigner(key)))
