"""The log of a history, for reading one that failed."""

from __future__ import annotations

from collections.abc import Collection


class Story:
    """Lines of (time, actor, subject, text)."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, str, str, str]] = []

    def add(self, now: int, who: str, subject: str, what: str) -> None:
        self.lines.append((now, who, subject, what))

    def about(self, subjects: Collection[str]) -> str:
        """The lines about these subjects and about the whole world (faults), in order of time."""
        chosen = [line for line in self.lines if not line[2] or line[2] in subjects or not subjects]
        return "\n".join(f"{now / 1e6:10.6f}  {who:<14} {subject:<16} {what}" for now, who, subject, what in chosen)
