"""What a verification finds."""

from __future__ import annotations

from dataclasses import dataclass

from smq_core.errors import CorruptChunk, CorruptDocument, DataLost


@dataclass(frozen=True, slots=True)
class FileProblem:
    """``path`` is the file's, relative to the store's root. ``what`` is wrong with it."""

    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"

    @staticmethod
    def of(error: CorruptChunk | CorruptDocument | DataLost, path: str) -> FileProblem:
        """``path`` is for errors that name no file."""
        found = error.path or path
        return FileProblem(found, error.message.removeprefix(f"{found}: "))
