"""The port to the platform that the leader runs on: desired topics, running brokers, and proofs of termination.

There are two adapters: ``local`` (files and processes of one machine) and ``kube`` (resources and Pods of a cluster).
The rest of the leader depends on this port alone. Every method is called on the event loop and must not block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from smq_core.model.entities import TopicSpec
from smq_storage.topic_manifests.parser import PAUSED, ManifestDocument, TopicManifest
from smq_storage.topic_manifests.spec_patch import SpecPatch


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredTopic:
    """A topic that should exist. ``uid`` is None if the platform assigns none; the filer's, or a new one, is used then.

    ``problem`` says why the last version of the spec is rejected; ``spec`` is then the last valid one. ``paused``: load
    must not change its segments (the annotation ``seaweedmq.io/autoscaling: paused``). ``generation`` grows with every
    change of the spec; 0 if the platform does not count them. ``was_created``: the platform knows that it has segments.
    """

    name: str
    spec: TopicSpec
    uid: str | None = None
    problem: str | None = None
    paused: bool = False
    generation: int = 0
    was_created: bool = field(default=False, compare=False)


def manifest_of(desired: DesiredTopic) -> TopicManifest:
    """The desired topic as the manifest that says the same."""
    namespace, _, name = desired.name.rpartition("/")
    return TopicManifest(namespace, name, desired.spec, PAUSED if desired.paused else None)


@dataclass(frozen=True, slots=True)
class AppliedManifest:
    """The topic's full name, ``created``, ``configured`` or ``unchanged``, and its manifest before and after.

    ``before`` is None if the topic is new.
    """

    topic: str
    result: str
    before: TopicManifest | None
    after: TopicManifest


@dataclass(frozen=True, slots=True)
class Problem:
    """Something on the platform that is invalid, such as a damaged manifest. It affects nothing else."""

    where: str
    message: str


@dataclass(frozen=True, slots=True)
class TerminationProof:
    """Why an incarnation has certainly ended, as text for people.

    ``journal_gone``: no later process can have its journal either, because it had none or the journal went with it.
    """

    text: str
    journal_gone: bool = True


class Platform(Protocol):
    """See the module's docstring."""

    async def start(self, changed: Callable[[], None]) -> None:
        """Starts to watch. ``changed`` is called on the event loop when a result of the methods below may differ."""
        ...

    async def stop(self) -> None:
        """Stops watching. Whether the brokers are stopped too depends on the adapter and its settings."""
        ...

    def desired_topics(self) -> Mapping[str, DesiredTopic]:
        """The topics by full name."""
        ...

    def problems(self) -> list[Problem]: ...

    async def apply(self, manifest: ManifestDocument, preview: bool = False) -> AppliedManifest:
        """Applies a Topic manifest. With ``preview`` it changes nothing, and returns what would change.

        Raises SpecRejected; then nothing has changed.
        """
        ...

    async def delete(self, topic: str) -> None:
        """Deletes the topic from the desired state. Raises UnknownTopic."""
        ...

    async def set_paused(self, topic: str, paused: bool) -> None:
        """Pauses or resumes autoscaling of the topic. Raises UnknownTopic, SpecRejected."""
        ...

    async def change_spec(self, topic: str, before: TopicSpec, patch: SpecPatch) -> None:
        """Changes these fields of the topic's spec, which is ``before`` now.

        Raises UnknownTopic, SpecRejected, and Conflict if the spec is another one.
        """
        ...

    def desired_brokers(self) -> int:
        """How many brokers should run."""
        ...

    def scale_brokers(self, count: int, stop_first: str | None = None) -> None:
        """Starts or stops brokers until that many run; ``stop_first`` names the broker to stop first.

        A broker that gets SIGTERM drains itself before it ends.
        """
        ...

    def restart_broker(self, name: str) -> None:
        """Replaces the process of this broker by a new one, after it has drained.

        Raises InvalidRequest if the platform leaves that to the user, and says how.
        """
        ...

    def termination_proof(self, incarnation: str, reporting: bool = False) -> TerminationProof | None:
        """The proof that this incarnation has ended, or None. That it is unreachable proves nothing.

        ``reporting``: whether its reports still arrive. A live incarnation overrides proofs that rest on a manual
        action (a forced Pod deletion, a Node removal). A later proof may add that the journal is gone.
        """
        ...

    def is_current_incarnation(self, broker: str, incarnation: str) -> bool | None:
        """Whether this incarnation runs under that name; None if the platform has no information about that name."""
        ...
