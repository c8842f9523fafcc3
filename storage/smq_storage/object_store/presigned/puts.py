"""Sends a presigned PUT: it needs no credentials, because the URL and its headers have all that the store checks."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import HTTPStore

from smq_core.errors import StoreDenied, StoreStateUnknown
from smq_storage.object_store.clients import client_options
from smq_storage.object_store.presigned.urls import PresignedPut
from smq_storage.object_store.request_bodies import Data, request_body
from smq_storage.object_store.results import ObjectExists

_STATUS = re.compile(r"status code: (\d{3})")
_ANSWER = re.compile(r"<Code>(.*?)</Code>(?:.*?<Message>(.*?)</Message>)?", re.DOTALL)
_CAUSE = re.compile(r" in [0-9.]+\w+ - (.*)")


def put_presigned(put: PresignedPut, data: Data, *, timeout: float, proxy: str | None = None) -> str:
    """Creates the file and returns its etag. ``timeout`` is in seconds.

    Raises ObjectExists if the URL was used before, StoreDenied if the store refuses the request (it has expired, or it
    is not the one that was signed), and StoreStateUnknown if there is no clear answer. No error has the signature.
    """
    where = put.url.partition("?")[0]
    headers = {name: value for name, value in put.headers.items() if name.lower() not in ("host", "content-length")}
    options: Any = {**client_options(put.url, timeout, proxy), "default_headers": headers}
    try:
        # An HTTP store whose only object is this URL.
        store = HTTPStore.from_url(
            put.url,
            client_options=options,
            retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=timeout)},
        )
        return str(obstore.put(store, "", request_body(data), use_multipart=False)["e_tag"])
    except (BaseError, OSError) as error:
        text = str(error)
    status = _STATUS.search(text)
    answer = _ANSWER.search(text)
    reason = ": ".join(filter(None, answer.groups())) if answer else ""
    if status is None:
        cause = _CAUSE.search(text)
        raise StoreStateUnknown(f"no clear answer from {where}: {cause[1] if cause else 'no connection'}", path=where)
    if status[1] in ("409", "412"):
        raise ObjectExists(f"{where}: {reason or status[1]}")
    if status[1] in ("401", "403"):
        raise StoreDenied(_denied(put, where, reason or status[1]), path=where)
    raise StoreStateUnknown(f"{where} was not written: {reason or f'status {status[1]}'}", path=where)


def _denied(put: PresignedPut, where: str, reason: str) -> str:
    if "expired" not in reason.lower():
        return (
            f"the store refuses the presigned URL of {where} ({reason}): the leader's key must exist and be allowed to "
            "write there, and no proxy may change the request's headers"
        )
    query = parse_qs(urlsplit(put.url).query)
    signed, lifetime = (query.get(name, ["?"])[0] for name in ("X-Amz-Date", "X-Amz-Expires"))
    return (
        f"the presigned URL of {where} has expired: it was signed at {signed} for {lifetime} seconds. If that "
        "was just now, the clocks of the leader and the store differ: set them"
    )
