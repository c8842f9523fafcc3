"""The authorities of a release in its folder: one file with their keys, and one with the bundle for everybody else."""

from __future__ import annotations

import asyncio
from pathlib import Path

from smq_core.errors import InvalidRequest, Unavailable
from smq_operator.local.security.private_files import write_private
from smq_operator.security.authority.authority_set import AuthoritySet
from smq_operator.security.authority.certificate_authority import AuthorityKeys

ROOTS, AUTHORITIES = "ca.crt", "authorities.json"


class FolderAuthorities:
    """See ``AuthorityStore``. One leader at a time has the folder, so nobody else changes it."""

    given_by = ""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self) -> AuthoritySet:
        """Raises InvalidRequest if they are not there, or damaged."""
        path = self._folder / AUTHORITIES
        try:
            return AuthoritySet.parse(path.read_bytes())
        except OSError as error:
            raise InvalidRequest(f"{path} cannot be read ({error.strerror}): restore it") from None
        except InvalidRequest as error:
            raise InvalidRequest(f"{path} is damaged ({error.message}): restore it") from None

    def write(self, authorities: AuthoritySet) -> None:
        """Raises Unavailable."""
        self._replace(AUTHORITIES, authorities.to_json())

    def write_roots(self, roots: bytes) -> None:
        """Raises Unavailable."""
        path = self._folder / ROOTS
        if not path.exists() or path.read_bytes() != roots:
            self._replace(ROOTS, roots)

    def _replace(self, name: str, content: bytes) -> None:
        try:
            write_private(self._folder / name, content)
        except OSError as error:
            raise Unavailable(f"{self._folder / name} cannot be written: {error.strerror}") from None

    async def load(self) -> AuthoritySet:
        return await asyncio.to_thread(self.read)

    async def save(self, authorities: AuthoritySet) -> None:
        await asyncio.to_thread(self.write, authorities)

    async def publish(self, roots: bytes) -> None:
        await asyncio.to_thread(self.write_roots, roots)

    async def given(self) -> AuthorityKeys | None:
        return None
