"""Reads many documents, of which one that cannot be read keeps no other one from being read.

Such a document is left in place and skipped, and it is a problem of the leader until it can be read or is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from smq_core.errors import CorruptChunk, CorruptDocument, InvalidRequest, StoreUnavailable
from smq_core.model.entities import SECOND
from smq_operator.runtime.problems import LeaderProblems

log = structlog.get_logger(__name__)

# The time after which a document that the filer lists but does not return is skipped, as a damaged one is.
UNAVAILABLE_AFTER_US = 30 * SECOND


@dataclass(slots=True)
class DocumentScan:
    """The outcome of one pass over documents, by path: damaged ones, and those that the filer did not return."""

    unreadable: dict[str, str] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def document(self, path: str) -> Iterator[None]:
        """Collects the error of reading this document, or what it refers to. Other errors are raised."""
        try:
            yield
        except (CorruptDocument, CorruptChunk, InvalidRequest, ValueError) as error:
            self.unreadable[path] = str(error)
        except StoreUnavailable as error:
            self.unavailable[path] = error.message


class DocumentQuarantine:
    """Turns the scans of one set of documents into problems. ``consequence`` says what the leader does not do now.

    Use it on the event loop.
    """

    def __init__(self, problems: LeaderProblems, clock: Callable[[], int], consequence: str, topic: str = "") -> None:
        self._problems = problems
        self._now = clock
        self._consequence = consequence
        self._topic = topic
        self._unavailable_since: dict[str, int] = {}
        self._quarantined: set[str] = set()

    def update(self, scan: DocumentScan) -> bool:
        """Takes a scan. Returns whether each document was read or is skipped for good reason."""
        now = self._now()
        self._unavailable_since = {path: self._unavailable_since.get(path, now) for path in scan.unavailable}
        lasting = {path for path, since in self._unavailable_since.items() if now - since >= UNAVAILABLE_AFTER_US}
        for path in scan.unavailable:
            log.warning("document.unavailable", path=path, message=scan.unavailable[path])
        quarantined = scan.unreadable | {path: scan.unavailable[path] for path in lasting}
        for path, reason in quarantined.items():
            message = f"{reason}. {path} is skipped, and {self._consequence}. Restore the file, or delete it"
            self._problems.quarantine(path, message, self._topic)
        for path in self._quarantined - quarantined.keys():
            self._problems.readable(path)
        self._quarantined = set(quarantined)
        return lasting >= scan.unavailable.keys()
