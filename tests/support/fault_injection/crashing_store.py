"""A store that ends its user at the n-th write or deletion: before it, or after it without an answer."""

from __future__ import annotations

from typing import Any

from smq_storage.object_store.store import Store


class ProcessCrashed(BaseException):
    """The process ended here. Not an Exception, so that no handler catches it."""


class CrashingStore:
    """Carries out ``left`` effects and raises at the next one.

    With ``answer_lost`` that one is carried out too. All other calls go to the store.
    """

    def __init__(self, store: Store, left: int, *, answer_lost: bool) -> None:
        self._store = store
        self._left = left
        self._answer_lost = answer_lost

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in ("put", "put_new", "put_if", "delete"):
            return method

        def effect(*arguments: Any) -> Any:
            self._left -= 1
            if self._left >= 0:
                return method(*arguments)
            if self._answer_lost and self._left == -1:
                method(*arguments)
            raise ProcessCrashed

        return effect
