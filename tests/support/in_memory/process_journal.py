"""Where the journals of single segments need no folder of their process."""

from __future__ import annotations


class NoProcessJournal:
    def begin(self) -> None: ...

    def mark_not_whole(self) -> None: ...
