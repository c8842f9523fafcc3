"""The batches of a producer that have no outcome, and the errors that its program may not have got."""

from __future__ import annotations

from collections import deque

from smq.producing.delivery_state import DeliveryState

# How many batches with errors are kept until the next flush, because a program may get the errors before that.
MAX_FAILED_BATCHES = 1000


class UnresolvedBatches:
    """In the order in which the batches began. The batcher's lock guards them, and the caller of a method holds it."""

    def __init__(self) -> None:
        self._states: deque[DeliveryState] = deque()
        self._failed: list[DeliveryState] = []
        """Those with errors that the program may not have got, since the last flush."""
        self._error: BaseException | None = None
        """One of more errors than ``_failed`` keeps."""

    def add(self, state: DeliveryState) -> None:
        self._drop_resolved()
        self._states.append(state)

    def all(self) -> list[DeliveryState]:
        """Those without an outcome, and some that have got theirs in the meantime."""
        return list(self._states)

    def count(self) -> int:
        """How many have no outcome, and began after the first of them."""
        self._drop_resolved()
        return len(self._states)

    def has_outcomes(self) -> bool:
        """Whether every row has its outcome."""
        return not any(state.left for state in self._states)

    def take_error(self) -> BaseException | None:
        """The first error since the last call that the program did not get from a delivery."""
        self._drop_resolved()
        error = self._error or self._first_error()
        self._error, self._failed = None, []
        return error

    def undelivered(self) -> int:
        """How many messages have no outcome, or failed without the program having got the error."""
        return sum(state.left + state.failures_not_raised() for state in [*self._failed, *self._states])

    def _drop_resolved(self) -> None:
        """Drops the oldest batches that have their outcome; keeps those with errors."""
        while self._states and self._states[0].left == 0:
            state = self._states.popleft()
            if state.first_error() is not None:
                self._failed.append(state)
                if len(self._failed) > MAX_FAILED_BATCHES:
                    self._forget_raised()

    def _forget_raised(self) -> None:
        """Keeps one error of all that the program has not got up to now."""
        self._error = self._error or self._first_error()
        self._failed = []

    def _first_error(self) -> BaseException | None:
        errors = (state.first_error_that_was_not_raised() for state in self._failed)
        return next((it for it in errors if it is not None), None)
