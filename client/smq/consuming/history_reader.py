"""Reads which segments a topic has had: those of its layout, and those that have left it."""

from __future__ import annotations

from collections.abc import Callable

from smq.transport.topic_view import SealedHistory, TopicView
from smq_core.errors import Unavailable
from smq_core.model.entities import Layout

MAX_ATTEMPTS = 3
RETRY_SECONDS = 0.15


class HistoryReader:
    """``wait`` waits for seconds, or until the consumer is closed, and then returns True. For one thread."""

    def __init__(self, view: TopicView, wait: Callable[[float], bool]) -> None:
        self._view = view
        self._wait = wait

    def read(self) -> tuple[SealedHistory, Layout]:
        """Takes the layout and then the index, which has the segments that left the layout.

        If neither has a predecessor, retention removed it or the index is outdated; the index is then read again.
        Raises Unavailable if it stays outdated.
        """
        layout = self._view.snapshot.layout
        history = self._view.sealed_history()
        for _ in range(MAX_ATTEMPTS):
            if not history.missing_predecessors(layout) or self._wait(RETRY_SECONDS):
                break
            history = self._view.sealed_history()
        else:
            raise Unavailable(f"the history of {self._view.name} is older than its layout")
        return history, layout
