"""Each measurement works in its own folder."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self


class WorkFolder(ABC):
    """A context manager: ``folder`` is emptied before, and removed afterwards unless something failed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    def __enter__(self) -> Self:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        try:
            self._begin()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()
        if error is None:
            shutil.rmtree(self.folder, ignore_errors=True)

    @abstractmethod
    def _begin(self) -> None:
        """Starts everything and waits until it works."""

    @abstractmethod
    def _end(self) -> None:
        """Ends what runs, also after half a beginning."""
