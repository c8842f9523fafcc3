"""The certificate in the answer to a login."""

from __future__ import annotations

from smq_core.access.certificates import Certificate
from smq_core.model.entities import SECOND
from smq_proto.v1 import auth_pb2 as pb


def certificate_from_pb(reply: pb.LoginReply) -> Certificate:
    return Certificate(
        chain=reply.certificate_chain,
        key=reply.private_key,
        roots=reply.roots,
        issued_at=reply.issued_at / SECOND,
        expires_at=reply.expires_at / SECOND,
    )


def certificate_to_pb(certificate: Certificate) -> pb.LoginReply:
    """A reply without the fields that are not the certificate's."""
    return pb.LoginReply(
        certificate_chain=certificate.chain,
        private_key=certificate.key,
        roots=certificate.roots,
        issued_at=round(certificate.issued_at * SECOND),
        expires_at=round(certificate.expires_at * SECOND),
    )
