from __future__ import annotations

from smq_core.access.certificates import Certificate
from smq_proto.logins import certificate_from_pb, certificate_to_pb


def test_a_certificate_crosses_the_wire_whole() -> None:
    certificate = Certificate(chain=b"chain", key=b"key", roots=b"roots", issued_at=1000.25, expires_at=4600.0)
    reply = certificate_to_pb(certificate)
    assert (reply.issued_at, reply.expires_at) == (1_000_250_000, 4_600_000_000)
    assert certificate_from_pb(reply) == certificate
