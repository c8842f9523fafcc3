"""What brokers on this machine get to reach their leader: a token and a file for each incarnation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from smq_core.access.modes import SecurityMode
from smq_operator.local.security.private_files import write_private
from smq_operator.security.identities.tokens import BrokerTokens

CA_VARIABLE, TOKEN_VARIABLE, PERMISSIVE_VARIABLE = "SMQ_CA_FILE", "SMQ_TOKEN_FILE", "SMQ_PERMISSIVE"


class BrokerCredentials:
    """``folder`` has the files of tokens; ``roots`` is the file by which brokers recognise others of the release."""

    def __init__(
        self, folder: Path, roots: Path, tokens: BrokerTokens, mode: SecurityMode = SecurityMode.REQUIRED
    ) -> None:
        self._folder = folder
        self._roots = roots
        self._tokens = tokens
        self.mode = mode

    def issue(self, incarnation: str) -> dict[str, str]:
        """The variables of the process that runs as this incarnation. Raises OSError."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        write_private(self._path(incarnation), self._tokens.issue(incarnation).encode())
        return {
            CA_VARIABLE: str(self._roots),
            TOKEN_VARIABLE: str(self._path(incarnation)),
            PERMISSIVE_VARIABLE: "true" if self.mode is SecurityMode.PERMISSIVE else "",
        }

    def revoke(self, incarnation: str) -> None:
        """Its process has ended."""
        self._path(incarnation).unlink(missing_ok=True)

    def _path(self, incarnation: str) -> Path:
        return self._folder / f"{incarnation}.token"


# A variable of this process's own, which may be a client too, is not meant for the brokers of an open release.
NO_CREDENTIALS = {CA_VARIABLE: "", TOKEN_VARIABLE: "", PERMISSIVE_VARIABLE: ""}


def mode_of(environment: Mapping[str, str]) -> SecurityMode:
    """The mode of a broker whose process has these variables."""
    if not environment.get(CA_VARIABLE):
        return SecurityMode.DISABLED
    return SecurityMode.PERMISSIVE if environment.get(PERMISSIVE_VARIABLE) else SecurityMode.REQUIRED
