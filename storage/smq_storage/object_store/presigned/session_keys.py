"""Temporary keys from the security token service (STS) of a store, which do less than the key that requests them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from urllib.parse import urlencode

from smq_core.errors import StoreDenied, StoreUnavailable
from smq_storage.object_store.clients import S3Options
from smq_storage.object_store.failures import reason_in
from smq_storage.object_store.presigned.connections import Connections, NoAnswer
from smq_storage.object_store.presigned.urls import SigningKey, signed_headers

# In place of a role: the session has the rights of whoever requests it. SeaweedFS knows this, AWS does not.
OWN = "own"
_FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """``role`` is an ARN, or ``OWN``. ``name`` is shown in the logs of the store.

    ``folders`` and ``files`` are below the bucket, and folders end with a slash.
    """

    role: str
    name: str
    bucket: str
    folders: tuple[str, ...]
    files: tuple[str, ...]
    lifetime: timedelta

    def policy(self) -> str:
        """What the keys may do: read these folders and files and list the folders, as far as the role may."""
        bucket = f"arn:aws:s3:::{self.bucket}"
        below = [f"{it}*" for it in self.folders]
        objects = [f"{bucket}/{it}" for it in (*below, *self.files)]
        read = {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": objects}
        condition = {"StringLike": {"s3:prefix": below}}
        listed = {"Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": [bucket], "Condition": condition}
        return json.dumps({"Version": "2012-10-17", "Statement": [read, listed]}, separators=(",", ":"))

    def form(self) -> dict[str, str]:
        """The request as STS takes it."""
        role = {"RoleArn": self.role} if self.role != OWN else {}
        return {
            "Action": "AssumeRole",
            "Version": "2011-06-15",
            **role,
            "RoleSessionName": self.name,
            "DurationSeconds": str(round(self.lifetime.total_seconds())),
            "Policy": self.policy(),
        }


@dataclass(frozen=True, slots=True)
class SessionKeys:
    key: SigningKey
    expires_at: datetime


def request_session_keys(request: SessionRequest, key: SigningKey, options: S3Options, now: datetime) -> SessionKeys:
    """``key`` signs the request. STS is at the store's endpoint, or at that of AWS. ``now`` is in UTC.

    Raises StoreDenied if STS refuses, StoreUnavailable if it does not answer.
    """
    url = options.endpoint or f"https://sts.{options.region}.amazonaws.com"
    body = urlencode(request.form()).encode()
    headers = signed_headers(url, {"content-type": _FORM}, body, key, options.region, "sts", now=now)
    try:
        answer = Connections(options.timeout, options.proxy).send("POST", url, headers, body)
    except NoAnswer as error:
        raise StoreUnavailable(f"no clear answer from {url} for temporary keys: {error.cause}", path=url) from None
    text = answer.body.decode(errors="replace")
    parts = {name: re.search(f"<{name}>([^<]+)</{name}>", text) for name in _PARTS}
    found = [match[1] for match in parts.values() if match is not None]
    if answer.status == HTTPStatus.OK and len(found) == len(_PARTS):
        access_key, secret_key, session_token, expiration = found
        return SessionKeys(SigningKey(access_key, secret_key, session_token), datetime.fromisoformat(expiration))
    reason = reason_in(text) or f"status {answer.status}"
    if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise StoreUnavailable(f"no temporary keys from {url}: {reason}", path=url)
    raise StoreDenied(
        f"{url} gives the leader no temporary keys ({reason}): its key must be allowed to assume the role "
        f"{request.role!r} (filer.sessionRole of the chart, --filer-session-role)"
    )


_PARTS = ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration")
