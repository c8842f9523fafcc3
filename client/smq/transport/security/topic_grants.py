"""The grants of one topic, as the leader gave them. They are presented as they are: brokers verify them."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import DecodeError

from smq_core.access.grants import GRANT_SECONDS
from smq_core.access.rights import Right
from smq_core.errors import Unavailable
from smq_core.model.entities import SECOND
from smq_proto.enums import RIGHT
from smq_proto.v1 import auth_pb2
from smq_proto.v1 import data_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicGrants:
    """``request`` presents them to a broker. Times are seconds since the Unix epoch, by this process's clock."""

    request: pb.PresentGrants
    rights: frozenset[Right]
    fetched_at: float
    expires_at: float

    @classmethod
    def of(cls, reply: auth_pb2.GetGrantsReply, now: float) -> TopicGrants:
        """Raises Unavailable if they cannot be decoded."""
        try:
            rights = frozenset(Right(RIGHT.word(pb.Grant.FromString(it.grant).right)) for it in reply.grants)
        except (DecodeError, ValueError) as error:
            raise Unavailable(f"the leader's grants cannot be decoded: {error}") from error
        # This process's clock may be wrong. A grant that seems to last for longer is renewed as often as others.
        left = min(max(reply.expires_at / SECOND - now, 0.0), GRANT_SECONDS)
        return cls(request=pb.PresentGrants(grants=reply.grants), rights=rights, fetched_at=now, expires_at=now + left)

    def renew_at(self) -> float:
        """After half of their life, so that an outage of the leader does no harm."""
        return self.fetched_at + (self.expires_at - self.fetched_at) / 2
