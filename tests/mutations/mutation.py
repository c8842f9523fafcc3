"""A mutation: one rule of a shell, the change that breaks it, and the tests that must fail then."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class StaleMutation(Exception):
    """The code that a mutation replaces is not there exactly once, so the table must follow the code."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """``rule`` is what holds without the mutation. It replaces ``old`` in ``file`` (a path from the root) by ``new``.

    ``caught_by`` are node ids of pytest, or test files. Each of them must fail.
    """

    name: str
    rule: str
    file: str
    old: str
    new: str
    caught_by: tuple[str, ...]

    def apply(self, root: Path) -> str:
        """Changes the file below ``root`` and returns its former text. Raises StaleMutation."""
        path = root / self.file
        if not path.is_file():
            raise StaleMutation(f"{self.file} does not exist")
        text = path.read_text()
        if (found := text.count(self.old)) != 1:
            raise StaleMutation(f"{self.file} contains the code to replace {found} times, not once")
        path.write_text(text.replace(self.old, self.new))
        return text
