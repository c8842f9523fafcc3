"""Closes what a program has opened, all of it, whatever fails."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Closable(Protocol):
    def close(self) -> None: ...


def close_all(opened: Iterable[Closable], error: BaseException | None = None) -> None:
    """Closes each of them, and then raises the first error of these, which has the others as notes.

    ``error`` is why the program leaves its block. It goes on, and gets the errors of ``close`` as notes.
    """
    raised = error
    for one in opened:
        try:
            one.close()
        except Exception as failure:  # also one of the program's own callbacks, such as on_revoked
            if raised is None:
                raised = failure
            elif failure is not raised:
                raised.add_note(f"The close of {one!r} failed, too: {failure}")
    if error is None and raised is not None:
        raise raised
