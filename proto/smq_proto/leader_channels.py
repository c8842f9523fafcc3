"""Encrypted channels to leaders, whose calls carry a bearer token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import grpc

from smq_core.access.peers import LEADER_SERVER_NAME
from smq_core.errors import Unauthenticated

# How gRPC reports what the plug-in below raises.
NO_TOKEN = "Getting metadata from plugin failed with error: "


class _BearerToken(grpc.AuthMetadataPlugin):  # type: ignore[misc]  # gRPC has no types
    """Called by gRPC before each call, in a thread of gRPC. gRPC never sends what it returns in clear text."""

    def __init__(self, read_token: Callable[[], str | None]) -> None:
        self._read_token = read_token

    def __call__(self, context: Any, callback: Any) -> None:
        try:
            token = self._read_token()
        except Unauthenticated as error:
            callback((), error)
            return
        callback((("authorization", f"Bearer {token}"),) if token else (), None)


def leader_channel(
    address: str, roots: bytes, read_token: Callable[[], str | None], options: Sequence[tuple[str, str | int]]
) -> grpc.Channel:
    """A channel to the leader at this address, which has to prove that it is the release's. Nothing is sent yet.

    ``roots`` are in PEM. ``read_token`` is called for each call; an Unauthenticated that it raises is in the details of
    the call's error, after ``NO_TOKEN``.
    """
    token = grpc.metadata_call_credentials(_BearerToken(read_token))
    return grpc.secure_channel(
        address,
        grpc.composite_channel_credentials(grpc.ssl_channel_credentials(roots), token),
        options=[*options, ("grpc.ssl_target_name_override", LEADER_SERVER_NAME)],
    )
