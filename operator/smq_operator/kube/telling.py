"""The leader's decisions, and problems of Topics that cannot be understood, as Events."""

from __future__ import annotations

import itertools
from typing import TypeAlias

from smq_core.decide import Decision
from smq_operator.kube.cache import Cache
from smq_operator.kube.events import About, EventWriter, Happened
from smq_operator.kube.kinds import DEPLOYMENTS, TOPICS, Key, Kind, Resource
from smq_operator.kube.resources import action_word
from smq_operator.loop import LeaderLoop

COMPONENT = "app.kubernetes.io/component"
Found: TypeAlias = list[tuple[Kind, Resource]]


class Teller:
    """Tells each decision once."""

    def __init__(self, loop: LeaderLoop, cache: Cache, events: EventWriter) -> None:
        self._loop = loop
        self._cache = cache
        self._events = events
        self._last: Decision | None = None
        self._problems: set[tuple[str, str]] = set()

    def tell(self) -> list[Decision]:
        """Tells what is new, and returns the decisions of it."""
        new = self._new()
        for decision in new:
            for kind, resource in self._about(decision):
                message = f"{', '.join(decision.segments)}: {decision.reason}" if decision.segments else decision.reason
                self._events.tell(Happened(About.of(kind, resource), action_word(decision.action), message))
        problems = {(problem.where, problem.message) for problem in self._loop.world.problems()}
        for where, message in sorted(problems - self._problems):
            for kind, resource in self._at(where):
                self._events.tell(Happened(About.of(kind, resource), "NotUnderstood", message, warning=True))
        self._problems = problems
        return new

    def _new(self) -> list[Decision]:
        every = self._loop.decisions
        found = list(itertools.takewhile(lambda decision: decision is not self._last, reversed(every)))
        if every:
            self._last = every[-1]
        return found[::-1]

    def _about(self, decision: Decision) -> Found:
        return self._topic(decision.topic) if decision.topic else self._brokers()

    def _at(self, where: str) -> Found:
        """What a problem is about, in the words of ``Problem.where``."""
        what, _, name = where.partition(" ")
        if what == "deployment":
            return [found for found in self._brokers() if found[1]["metadata"]["name"] == name]
        return self._topic(name)

    def _topic(self, name: str) -> Found:
        topic = self._cache.topics.get(key_of_topic(name))
        return [(TOPICS, topic)] if topic is not None else []

    def _brokers(self) -> Found:
        """The Deployments of brokers; their number is one decision for all of them."""
        every = self._cache.deployments.values()
        return [(DEPLOYMENTS, d) for d in every if (d["metadata"].get("labels") or {}).get(COMPONENT) == "broker"]


def key_of_topic(name: str) -> Key:
    """Namespace and name of ``namespace/topic``."""
    namespace, _, short = name.partition("/")
    return namespace, short
