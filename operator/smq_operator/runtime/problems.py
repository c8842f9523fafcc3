"""What is wrong in the leader itself or in the filer, as far as no single topic's spec is to blame.

``smq topic list`` shows these problems, Events name them on Kubernetes, and metrics count them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import structlog

log = structlog.get_logger(__name__)

# What the ``where`` of an unreadable document begins with; its path follows.
DOCUMENT = "document "
# The ``where`` of certificates of a secure release that cannot be renewed.
CERTIFICATES = "certificates"


@dataclass(frozen=True, slots=True)
class LeaderProblem:
    """``where`` names the task or the document; ``topic`` is the full name of the topic concerned, if it is known."""

    where: str
    message: str
    topic: str = ""


class LeaderProblems:
    """The problems that last. Use it on the event loop."""

    def __init__(self) -> None:
        self._problems: dict[str, LeaderProblem] = {}

    def all(self) -> list[LeaderProblem]:
        return [self._problems[where] for where in sorted(self._problems)]

    def report(self, where: str, message: str, topic: str = "") -> None:
        """Takes a problem in place of the last one at that place; logs it if it is new."""
        problem = LeaderProblem(where, message, topic)
        if self._problems.get(where) != problem:
            self._problems[where] = problem
            log.error("leader.problem", where=where, topic=topic, message=message)

    def show(self, where: str, message: str) -> None:
        """The problem at that place; none if the message is empty."""
        if message:
            self.report(where, message)
        else:
            self.clear(where)

    def clear(self, where: str) -> None:
        """That place is in order again."""
        if self._problems.pop(where, None) is not None:
            log.info("leader.problem_resolved", where=where)

    def quarantine(self, path: str, reason: str, topic: str = "") -> None:
        """The document at this path is left in place and skipped, because it cannot be read."""
        self.report(DOCUMENT + path, reason, topic)

    def readable(self, path: str) -> None:
        """The document was read, or is gone."""
        self.clear(DOCUMENT + path)

    def unreadable_documents(self) -> list[str]:
        """The paths of the documents that are skipped."""
        return [where.removeprefix(DOCUMENT) for where in sorted(self._problems) if where.startswith(DOCUMENT)]

    def kinds(self) -> Counter[str]:
        """How many documents are skipped, by the folder or the name that says what they are."""
        return Counter(_kind(path) for path in self.unreadable_documents())


def _kind(path: str) -> str:
    folder, _, name = path.rpartition("/")
    if name.endswith(".parquet"):
        return "chunks"
    last = folder.rpartition("/")[2]
    return last.removeprefix("_") if last.startswith("_") else name.removeprefix("_").partition(".")[0]
