"""Connects a program: checks what it passes, and what the environment says, and makes its client."""

from __future__ import annotations

import os
from collections.abc import Callable

from smq.client import Client
from smq.forks import check_process
from smq.transport.connect_target import resolve_target
from smq.transport.upload_modes import UPLOAD_MODES, UploadMode
from smq_core.errors import InvalidRequest


def connect(
    leader: str | None = None,
    *,
    namespace: str = "default",
    timeout: float = 10.0,
    via: str | None = None,
    filer_url: str | None = None,
    filer_endpoint: str | None = None,
    filer_region: str | None = None,
    filer_access_key: str | None = None,
    filer_secret_key: str | None = None,
    filer_session_token: str | None = None,
    ca_file: str | os.PathLike[str] | None = None,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    cert_file: str | os.PathLike[str] | None = None,
    key_file: str | os.PathLike[str] | None = None,
    uploads: UploadMode = "auto",
    on_wait: Callable[[str], None] | None = None,
) -> Client:
    """Returns a client of the leader at ``host:port[,host:port...]``. It opens no connection before it needs one.

    leader: addresses of which any may be the leader; the client finds it. None means the environment's SMQ_LEADER. If
        neither is set, the client can only read, directly from the files at ``filer_url``.
    timeout: seconds, for each call to the leader, and until a new producer or consumer has located its topic.
    via: ``host:port`` of a broker's relay, for a client outside the cluster; None means the environment's SMQ_VIA. All
        connections to the leader, the brokers and an ``http://`` filer go through the relay. The leader's address is
        not needed then.
    filer_url, filer_endpoint, filer_region: where the files are (``s3://bucket/prefix``); None means SMQ_FILER_URL,
        SMQ_FILER_ENDPOINT and SMQ_FILER_REGION. Not needed with a leader, which reports them.
    filer_access_key, filer_secret_key, filer_session_token: temporary credentials have a token. None of them means the
        AWS_ variables, or anonymous access without these.
    ca_file: the roots of a secure release, in PEM; None means SMQ_CA_FILE. With it all connections to the leader and
        the brokers are encrypted, and both sides prove who they are.
    token, token_file: a bearer token, or the file that has it and is read anew at each use. None of them means
        SMQ_TOKEN or SMQ_TOKEN_FILE. A token needs a ``ca_file``, because it never travels in clear text.
    cert_file, key_file: a client certificate in place of a token: its chain and its private key, in PEM, both read anew
        at each use. None of them means SMQ_CERT_FILE and SMQ_KEY_FILE. One file may have both.
    uploads: how producers write large values, and what they publish by reference. "direct" uses this client's
        credentials for the filer. "presigned" needs none: for each file the leader signs a URL that is good for this
        file alone. "auto" is "presigned" if the filer needs credentials and this client has none, else "direct".
    on_wait: called with a text for a person when the leader has not answered for a second: what is waited for, and why.

    Raises InvalidRequest if there is neither a leader nor a filer, or an option is wrong, and in a fork of a process
    that had a client before.
    """
    check_process()
    target = resolve_target(
        leader,
        via=via,
        filer_url=filer_url,
        filer_endpoint=filer_endpoint,
        filer_region=filer_region,
        filer_access_key=filer_access_key,
        filer_secret_key=filer_secret_key,
        filer_session_token=filer_session_token,
        ca_file=ca_file,
        token=token,
        token_file=token_file,
        cert_file=cert_file,
        key_file=key_file,
    )
    if uploads not in UPLOAD_MODES:
        raise InvalidRequest(f"uploads must be one of {', '.join(UPLOAD_MODES)}, not {uploads!r}")
    if uploads == "presigned" and not target.leaders:
        raise InvalidRequest('uploads="presigned" needs a leader, which signs the URLs; pass its address (host:port)')
    return Client(target, namespace=namespace, timeout=timeout, uploads=uploads, on_wait=on_wait)
