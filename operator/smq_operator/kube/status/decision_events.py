"""Records the leader's decisions, and invalid Topics and Deployments, as Events."""

from __future__ import annotations

import itertools
from typing import TypeAlias

from smq_core.model.decision import Decision
from smq_operator.kube.client.events import EventRecorder, KubeEvent, ObjectReference
from smq_operator.kube.client.kinds import DEPLOYMENTS, TOPICS, Key, Kind, Resource
from smq_operator.kube.informer.cache import ResourceCache
from smq_operator.kube.settings import COMPONENT_LABEL
from smq_operator.kube.status.desired_resources import camel_case
from smq_operator.platform_port import Platform
from smq_operator.reconcile.decision_log import DecisionLog
from smq_operator.runtime.problems import CERTIFICATES, DOCUMENT, LeaderProblem, LeaderProblems

Found: TypeAlias = list[tuple[Kind, Resource]]


class DecisionEventRecorder:
    """Records each decision once."""

    def __init__(
        self,
        *,
        decisions: DecisionLog,
        platform: Platform,
        leader_problems: LeaderProblems,
        cache: ResourceCache,
        events: EventRecorder,
    ) -> None:
        self._decisions = decisions
        self._platform = platform
        self._leader_problems = leader_problems
        self._cache = cache
        self._events = events
        self._last: Decision | None = None
        self._problems: set[tuple[str, str]] = set()
        self._recorded: set[LeaderProblem] = set()

    def record(self) -> list[Decision]:
        """Records what is new; returns the new decisions."""
        new = self._new()
        for decision in new:
            for kind, resource in self._objects_of_decision(decision):
                message = f"{', '.join(decision.segments)}: {decision.reason}" if decision.segments else decision.reason
                self._events.record(KubeEvent(ObjectReference.of(kind, resource), camel_case(decision.action), message))
        problems = {(problem.where, problem.message) for problem in self._platform.problems()}
        for where, message in sorted(problems - self._problems):
            for kind, resource in self._objects_of_problem(where):
                self._events.record(
                    KubeEvent(ObjectReference.of(kind, resource), "InvalidConfiguration", message, warning=True)
                )
        self._problems = problems
        self._record_leader_problems()
        return new

    def _record_leader_problems(self) -> None:
        """As Events of the topic concerned, if one is known and exists, else of the operator."""
        problems = set(self._leader_problems.all())
        for problem in sorted(problems - self._recorded, key=lambda it: it.where):
            reason = "DocumentUnreadable" if problem.where.startswith(DOCUMENT) else "LeaderTaskFailed"
            if problem.where == CERTIFICATES:
                reason = "CertificatesNotReady"
            for kind, resource in self._topic(problem.topic) or self._deployments("operator"):
                self._events.record(
                    KubeEvent(ObjectReference.of(kind, resource), reason, problem.message, warning=True)
                )
        self._recorded = problems

    def _new(self) -> list[Decision]:
        every = self._decisions.recent
        found = list(itertools.takewhile(lambda decision: decision is not self._last, reversed(every)))
        if every:
            self._last = every[-1]
        return found[::-1]

    def _objects_of_decision(self, decision: Decision) -> Found:
        return self._topic(decision.topic) if decision.topic else self._brokers()

    def _objects_of_problem(self, where: str) -> Found:
        """The objects that ``Problem.where`` names."""
        what, _, name = where.partition(" ")
        if what == "deployment":
            return [found for found in self._brokers() if found[1]["metadata"]["name"] == name]
        return self._topic(name)

    def _topic(self, name: str) -> Found:
        topic = self._cache.topics.get(key_of_topic(name))
        return [(TOPICS, topic)] if topic is not None else []

    def _brokers(self) -> Found:
        """The broker Deployments: a decision on the number of brokers concerns all of them."""
        return self._deployments("broker")

    def _deployments(self, component: str) -> Found:
        every = self._cache.deployments.values()
        return [
            (DEPLOYMENTS, d) for d in every if (d["metadata"].get("labels") or {}).get(COMPONENT_LABEL) == component
        ]


def key_of_topic(name: str) -> Key:
    """Namespace and name of ``namespace/topic``."""
    namespace, _, short = name.partition("/")
    return namespace, short
