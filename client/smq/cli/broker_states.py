"""The states of broker processes, in words. A list of brokers has former processes, too, as long as they matter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smq import BrokerInfo

FORMER = ("recovered", "gone")
"""Processes that have ended, and whose journal nobody waits for."""

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


def explanations(brokers: Iterable[BrokerInfo]) -> list[str]:
    """What the states of these brokers mean, a line each; of a state that nobody needs explained there is none."""
    found = {broker.state for broker in brokers}
    return [f"{state}: {text}" for state, text in EXPLANATIONS.items() if state in found]
