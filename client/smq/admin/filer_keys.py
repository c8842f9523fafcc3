"""Temporary keys of the filer, as the leader hands them out to the readers of a topic."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from smq.admin.wire_times import instant_of
from smq_proto.v1 import topics_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class FilerKeys:
    """They read and list the files of one topic at ``url``, such as ``s3://bucket/prefix``, until ``expires_at``.

    ``endpoint`` is None for that of AWS, ``region`` for the usual one.
    """

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    session_token: str = field(repr=False)
    expires_at: datetime
    url: str
    endpoint: str | None
    region: str | None

    def environment(self) -> dict[str, str]:
        """The variables by which DuckDB, Polars, Hadoop's S3A and other tools find them."""
        found = {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_SESSION_TOKEN": self.session_token,
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_REGION": self.region,
        }
        return {name: value for name, value in found.items() if value}


def filer_keys(reply: topics_pb2.FilerKeys) -> FilerKeys:
    options = dict(reply.store_options)
    return FilerKeys(
        access_key=reply.access_key,
        secret_key=reply.secret_key,
        session_token=reply.session_token,
        expires_at=instant_of(reply.expires_at),
        url=reply.store_url,
        endpoint=options.get("endpoint"),
        region=options.get("region"),
    )
