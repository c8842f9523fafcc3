"""A store whose user dies at the n-th write or deletion: before it, or after it, without hearing of it."""

from __future__ import annotations

from typing import Any

from smq_storage.store import Store


class Died(BaseException):
    """The process ended here. Not an Exception: nobody is to catch it."""


class DyingStore:
    """``left`` effects are carried out; at the next one whoever uses the store dies.

    ``unheard``: that one is carried out too. Everything else is the store's own.
    """

    def __init__(self, store: Store, left: int, *, unheard: bool) -> None:
        self._store = store
        self._left = left
        self._unheard = unheard

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in ("put", "put_new", "put_if", "delete"):
            return method

        def effect(*arguments: Any) -> Any:
            self._left -= 1
            if self._left >= 0:
                return method(*arguments)
            if self._unheard and self._left == -1:
                method(*arguments)
            raise Died

        return effect
