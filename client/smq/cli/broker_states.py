"""The states of broker processes, in words. A list of brokers has former processes, too, as long as they matter."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from smq.cli.output.formatting import age

if TYPE_CHECKING:
    from smq import BrokerInfo

# Processes that have ended, and whose journal nobody waits for.
FORMER = ("recovered", "gone")

EXPLANATIONS = {
    "draining": "its segments move to other brokers, and it takes no new ones",
    "suspect": "it does not answer; its segments move as soon as possible",
    "ended": "a process that has ended. Its journal may have messages that are nowhere else, and comes back with the "
    "next process of that broker",
    "recovered": "a former process. The present one of that broker holds its journal; it leaves the list about ten "
    "minutes after its last segment is sealed",
    "gone": "a former process that has ended with its journal; it leaves the list after about ten minutes",
}


def present(brokers: Iterable[BrokerInfo]) -> list[BrokerInfo]:
    """All but former processes."""
    return [broker for broker in brokers if broker.state not in FORMER]


def by_name(brokers: Iterable[BrokerInfo]) -> dict[str, list[BrokerInfo]]:
    """The processes of each broker: the present one first, then former ones, the newest first."""
    found: dict[str, list[BrokerInfo]] = {}
    for broker in sorted(brokers, key=lambda b: (b.name, b.state in FORMER, b.state == "ended", -_ended_at(b))):
        found.setdefault(broker.name, []).append(broker)
    return found


def _ended_at(broker: BrokerInfo) -> float:
    return broker.ended_at.timestamp() if broker.ended_at is not None else 0.0


def last_end(processes: Iterable[BrokerInfo], now: datetime) -> str:
    """Why the last process of a broker ended, and how long ago; a dash if none has ended that the leader knows."""
    newest = max((b for b in processes if b.ended), key=_ended_at, default=None)
    return "–" if newest is None else f"{newest.ended}, {age(newest.ended_at, now)} ago"


def explanations(brokers: Iterable[BrokerInfo]) -> list[str]:
    """What the states of these brokers mean, a line each; of a state that nobody needs explained there is none."""
    found = {broker.state for broker in brokers}
    return [f"{state}: {text}" for state, text in EXPLANATIONS.items() if state in found]
