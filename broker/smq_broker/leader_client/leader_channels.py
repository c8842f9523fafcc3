"""Channels to leaders, and the errors that leaders answer with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from smq_core.errors import PermissionDenied, SmqError, Unauthenticated, Unreachable
from smq_proto.channel_options import NO_PROXY
from smq_proto.connection_failures import CLOSED_AT_ONCE, cause_of
from smq_proto.error_conversion import error_from_pb
from smq_proto.leader_channels import NO_TOKEN, leader_channel
from smq_proto.tls_probe import speaks_tls
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
    replace them. With ``permissive`` a leader that does not speak TLS is called in clear text, without the token.
    """

    def __init__(self, ca_file: str = "", token_file: str = "", *, permissive: bool = False) -> None:
        self._ca_file = ca_file
        self._token_file = token_file
        self._permissive = permissive

    def connect(self, address: str, options: Sequence[tuple[str, Any]] = ()) -> grpc.Channel:
        """Blocks for two seconds at most, with ``permissive``. Raises Unauthenticated if the roots cannot be read."""
        options = [*COMMON, *options]
        if not self._ca_file or (self._permissive and not speaks_tls(address)):
            return grpc.insecure_channel(address, options)
        return leader_channel(address, _read("roots of the release", self._ca_file), self._read_token, options)

    def connect_for_callers(self, address: str) -> grpc.Channel:
        """An encrypted channel whose calls carry the tokens of others, and never this broker's own one.

        Raises Unauthenticated if the roots cannot be read.
        """
        return leader_channel(address, _read("roots of the release", self._ca_file), lambda: None, COMMON)

    def _read_token(self) -> str:
        """Raises Unauthenticated."""
        token = _read("token", self._token_file).strip()
        if not token or not token.isascii() or not token.decode().isprintable():
            raise Unauthenticated(f"the file {self._token_file} has no token")
        return token.decode()

    def failure_of(self, error: grpc.RpcError, address: str) -> SmqError | None:
        """The error that the leader at this address sent, or what has to be changed here; None if neither is known."""
        if not isinstance(error, grpc.Call):
            return None
        trailers: Any = error.trailing_metadata()
        for key, value in trailers or ():
            if key == ERROR_TRAILER and isinstance(value, bytes):
                try:
                    return error_from_pb(pb.Error.FromString(value))
                except DecodeError:
                    return None
        details = str(error.details())
        if NO_TOKEN in details:
            return Unauthenticated(details.partition(NO_TOKEN)[2])
        if not self._ca_file and cause_of(details) == CLOSED_AT_ONCE and speaks_tls(address):
            return Unauthenticated(
                f"the leader at {address} speaks TLS only: start this broker with the roots of the release (--ca-file) "
                "and a token (--token-file)"
            )
        rejection = _REJECTIONS.get(error.code())
        return None if rejection is None else rejection(details)

    def error_of(self, error: grpc.RpcError, address: str) -> SmqError:
        """As ``failure_of``, or Unreachable."""
        known = self.failure_of(error, address)
        if known is not None:
            return known
        cause = cause_of(str(error.details() if isinstance(error, grpc.Call) else error))
        return Unreachable(f"the leader at {address} does not answer: {cause}")


def _read(what: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise Unauthenticated(f"the {what} cannot be read: {error}") from None
