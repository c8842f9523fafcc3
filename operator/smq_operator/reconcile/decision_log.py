"""The leader's recent decisions, for ``smq topic decisions``, metrics and Events."""

from __future__ import annotations

from collections import Counter, deque

import structlog

from smq_core.model.decision import Decision, DecisionAction

log = structlog.get_logger(__name__)

MAX_KEPT_DECISIONS = 500


class DecisionLog:
    """``recent`` holds the last decisions, oldest first; ``counts`` counts those about topics by topic and action."""

    def __init__(self) -> None:
        self.recent: deque[Decision] = deque(maxlen=MAX_KEPT_DECISIONS)
        self.counts: Counter[tuple[str, DecisionAction]] = Counter()

    def record(self, decision: Decision) -> None:
        """Keeps, counts and logs a decision about a topic."""
        self.recent.append(decision)
        self.counts[decision.topic, decision.action] += 1
        log.info(
            "decision",
            topic=decision.topic,
            action=decision.action,
            segments=list(decision.segments),
            reason=decision.reason,
        )

    def record_of_brokers(self, decision: Decision) -> None:
        """Keeps and logs a decision about the number of brokers, or the end of one that nobody wanted to end."""
        self.recent.append(decision)
        log.info("decision", action=decision.action, reason=decision.reason)
