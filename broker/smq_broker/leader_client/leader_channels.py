"""Channels to leaders, the token that calls carry, and the errors that leaders answer with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from smq_core.access.peers import LEADER_SERVER_NAME
from smq_core.errors import PermissionDenied, SmqError, Unauthenticated
from smq_proto.channel_options import NO_PROXY
from smq_proto.error_conversion import error_from_pb
from smq_proto.v1 import data_pb2 as pb

ERROR_TRAILER = "smq-error-bin"
# What a rejection means that comes without an error, for example from a proxy.
_REJECTIONS = {
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
}

# Options of all channels to leaders.
COMMON = (NO_PROXY,)


class LeaderChannels:
    """With ``ca_file``, the roots of the release in PEM, channels are encrypted and only a leader's certificate counts.

    Then each call carries the bearer token in ``token_file``. Both files are read anew each time, because others
    replace them.
    """

    def __init__(self, ca_file: str = "", token_file: str = "") -> None:
        self._ca_file = ca_file
        self._token_file = token_file

    def connect(self, address: str, options: Sequence[tuple[str, Any]] = ()) -> grpc.Channel:
        """Raises Unauthenticated if the roots cannot be read."""
        if not self._ca_file:
            return grpc.insecure_channel(address, [*COMMON, *options])
        roots = grpc.ssl_channel_credentials(_read("roots of the release", self._ca_file))
        named = ("grpc.ssl_target_name_override", LEADER_SERVER_NAME)
        return grpc.secure_channel(address, roots, [*COMMON, named, *options])

    def metadata(self) -> tuple[tuple[str, str], ...] | None:
        """What each call carries. Raises Unauthenticated if the token cannot be read."""
        if not self._token_file:
            return None
        token = _read("token", self._token_file).strip()
        if not token or not token.isascii() or not token.decode().isprintable():
            raise Unauthenticated(f"the file {self._token_file} has no token")
        return (("authorization", f"Bearer {token.decode()}"),)


def failure_of(error: grpc.RpcError) -> SmqError | None:
    """The error that the leader sent, if it sent one."""
    if not isinstance(error, grpc.Call):
        return None
    trailers: Any = error.trailing_metadata()
    for key, value in trailers or ():
        if key == ERROR_TRAILER and isinstance(value, bytes):
            try:
                return error_from_pb(pb.Error.FromString(value))
            except DecodeError:
                return None
    rejection = _REJECTIONS.get(error.code())
    return None if rejection is None else rejection(str(error.details()))


def _read(what: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise Unauthenticated(f"the {what} cannot be read: {error}") from None
