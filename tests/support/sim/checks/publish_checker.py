"""Checks atomic publishes: who commits, in which order, and that every committed row is in the log once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from smq_core.invariants import Message, Row, Violation
from smq_core.model.atomic_publish import AppState, AtomicPublishes, CommitResult
from smq_core.model.entities import Segment
from smq_core.model.segment_action import SegmentAction
from smq_core.model.segment_changes import SegmentChange
from smq_core.reconcile.answers import ChangeRequested
from support.sim.filer.chunk_chain import PUBLISHES

if TYPE_CHECKING:
    from smq.delivery import AtomicReceipt
    from support.sim.clients.atomic_publishes import SimulatedPublisher
    from support.sim.histories.atomic import AtomicHistory


class PublishChecker:
    """Sees every version of the document that the store has."""

    def __init__(self, history: AtomicHistory) -> None:
        self.results: Counter[CommitResult] = Counter()
        self.fenced = self.renewed = 0
        self.paused: Counter[str] = Counter()
        """How often a leader was paused before a step, while it rolled a publish forward."""
        self.taken_over = 0
        """How often a leader that began to roll forward found that another one had completed the publish."""
        self.committed: dict[tuple[str, int], tuple[Message, ...]] = {}
        self._history = history
        self._requests: dict[str, str] = {}
        self._uploads: dict[str, tuple[Message, ...]] = {}
        self._document = AtomicPublishes()
        history.store.watchers.append(self._stored)

    def requested(self, request: str, owner: str) -> None:
        self._requests[request] = owner

    def was_fenced(self, app: str, owner: str) -> None:
        """A program was told that another one publishes for the app."""
        self.fenced += 1
        state = self._document.app(app)
        if state is None or state.owner == owner:
            self._history.checker.must([Violation(2, app, f"{owner} is fenced, and nobody else has claimed the app")])

    def returned(self, program: SimulatedPublisher, receipt: AtomicReceipt, messages: Sequence[Message]) -> None:
        """A call of the client has returned this for these rows.

        A program that counts up from the last version publishes each one itself, so its rows are never dropped.
        """
        must, app, version = self._history.checker.must, receipt.app, receipt.version
        already = receipt.already_published
        self.results[CommitResult.ALREADY_PUBLISHED if already else CommitResult.COMMITTED] += 1
        state = self._document.app(app)
        if state is None or state.version is None or state.version < receipt.last_version or state.version < version:
            must([Violation(2, app, f"{receipt} is returned, and the app has {state}")])
        elif state.version == version and state.unfinished is not None:
            must([Violation(2, app, f"{receipt} is returned before version {version} is complete")])
        dropped = set(messages) - set(self.committed.get((app, version), ()))
        if dropped and (program.counts_up or not already):
            must([Violation(2, app, f"{receipt} is returned to {program.name}, and {dropped} are dropped")])

    def uploaded(self, name: str, rows: tuple[Message, ...]) -> None:
        self._uploads[name] = rows

    def roll(self, segment: Segment) -> None:
        """Somebody follows the advice of a leader that waits for a seal."""
        roll = SegmentChange(SegmentAction.ROLL, (segment.name,))
        for leader in self._history.leaders.values():
            if leader.process.alive and leader.machine.layout is not None:
                try:
                    leader.machine.handle(ChangeRequested(roll), leader.clock())
                except ValueError:
                    continue

    @property
    def waiting(self) -> dict[str, str]:
        """The apps with an unfinished version."""
        return {it.app: f"version {it.version} is not complete" for it in self._document.unfinished}

    def check(self, log: Sequence[Row]) -> None:
        """At the end. ``log`` has every row of every chain; that none is there twice is checked for all messages."""
        must, checker = self._history.checker.must, self._history.checker
        found = {row.message for row in log}
        lost = [checker.ranges[name] for name in checker.losses.lost]
        wanted = set[Message]()
        for (app, version), messages in self.committed.items():
            wanted.update(messages)
            for message in messages:
                if message not in found and not any(message.partition in range_ for range_ in lost):
                    must([Violation(2, app, f"{message} of version {version} is committed, and not in the log")])
        for messages in self._uploads.values():
            for message in messages:
                if message in found and message not in wanted:
                    must([Violation(2, message.producer, f"{message} was never committed, and is in the log")])

    def _stored(self, path: str, value: Any) -> None:
        if path != PUBLISHES:
            return
        for state in value.apps:
            before = self._document.app(state.app)
            if before is None or before.version != state.version:
                self._committed(before, state)
            elif state.unfinished != before.unfinished and state.unfinished is not None:
                self._history.checker.must([Violation(2, state.app, f"version {state.version} was committed again")])
        self._document = value

    def _committed(self, before: AppState | None, state: AppState) -> None:
        must, app = self._history.checker.must, state.app
        if state.version is None:
            return
        if before is not None and before.version is not None and before.version > state.version:
            must([Violation(2, app, f"version {state.version} was committed after {before.version}")])
        if before is not None and before.unfinished is not None:
            must([Violation(2, app, f"version {state.version} began before {before.version} was complete")])
        if before is not None and self._requests[state.request] != before.owner:
            must([Violation(2, app, f"{self._requests[state.request]} published, but {before.owner} owns the app")])
        publish = state.unfinished
        files = publish.files if publish is not None else ()
        self.committed[app, state.version] = tuple(m for file in files for m in self._uploads[file.upload])
        self._history.world.note("!", "", f"{app} {state.version} is committed")
