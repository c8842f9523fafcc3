"""Encrypted channels to the leader, whose calls carry the program's token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc

from smq.transport.security.security_files import SecurityFiles
from smq_core.access.peers import LEADER_SERVER_NAME
from smq_core.errors import Unauthenticated

# How gRPC reports what the plug-in below raises.
NO_TOKEN = "Getting metadata from plugin failed with error: "


class _BearerToken(grpc.AuthMetadataPlugin):  # type: ignore[misc]  # gRPC has no types
    """Called by gRPC before each call, in a thread of gRPC. It reads the token anew."""

    def __init__(self, files: SecurityFiles) -> None:
        self._files = files

    def __call__(self, context: Any, callback: Any) -> None:
        try:
            token = self._files.read_token()
        except Unauthenticated as error:
            callback((), error)
            return
        callback((("authorization", f"Bearer {token}"),) if token else (), None)


def leader_channel(address: str, files: SecurityFiles, options: Sequence[tuple[str, str | int]]) -> grpc.Channel:
    """A channel to the leader at this address, which has to prove that it is the release's. Nothing is sent yet.

    Raises InvalidRequest if there are no roots.
    """
    encrypted = grpc.ssl_channel_credentials(root_certificates=files.roots())
    token = grpc.metadata_call_credentials(_BearerToken(files))
    return grpc.secure_channel(
        address,
        grpc.composite_channel_credentials(encrypted, token),
        options=[*options, ("grpc.ssl_target_name_override", LEADER_SERVER_NAME)],
    )
