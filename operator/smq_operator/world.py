"""The port to the world around the leader: who wishes which topics, who runs brokers, who knows that one is dead.

Two adapters fill it: processes and files on one machine (``local``), resources and Pods of a cluster. The loop and the
service know only this. All methods are called on the leader's event loop; none may block it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from smq_core.model import TopicSpec


@dataclass(frozen=True, slots=True)
class Wish:
    """A topic that somebody wants. ``uid`` is None where the world gives none: then the filer's is taken, or one made.

    ``problem`` says in words why the wish, as it was last written, is not followed; the spec is then the last good one.
    ``paused``: load shall change nothing of it (the annotation ``seaweedmq.io/autoscaling: paused``).
    """

    name: str
    spec: TopicSpec
    uid: str | None = None
    problem: str | None = None
    paused: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in the world that cannot be understood, such as a damaged manifest; everything else goes on."""

    where: str
    message: str


class World(Protocol):
    """See the module's docstring."""

    async def start(self, changed: Callable[[], None]) -> None:
        """Begins to watch; ``changed`` is called, on the event loop, whenever one of the answers below may differ."""
        ...

    async def stop(self) -> None:
        """Lets go. What happens to the brokers is the adapter's (and its owner's) choice."""
        ...

    def wishes(self) -> Mapping[str, Wish]:
        """The topics by full name."""
        ...

    def problems(self) -> list[Problem]: ...

    async def apply(self, manifest: str) -> tuple[str, str]:
        """Takes a Topic manifest. Returns the topic's full name and ``created``, ``configured`` or ``unchanged``.

        Raises InvalidManifest; then nothing has changed.
        """
        ...

    async def delete(self, topic: str) -> None:
        """The topic is wished no more. Raises UnknownTopic."""
        ...

    async def set_paused(self, topic: str, paused: bool) -> None:
        """Lets load change nothing of the topic, or again what it wants. Raises UnknownTopic, InvalidManifest."""
        ...

    def brokers_wanted(self) -> int:
        """How many brokers shall run."""
        ...

    def want_brokers(self, count: int, go: str | None = None) -> None:
        """Starts or stops brokers until that many run; ``go`` names the one to stop first.

        A broker that is stopped is asked to (SIGTERM): it drains itself before it ends.
        """
        ...

    def proof_of_death(self, incarnation: str) -> str | None:
        """In words why this incarnation is certainly no more, or None. Unreachable is no proof."""
        ...

    def claims(self, broker: str, incarnation: str) -> bool | None:
        """Is this incarnation the one that runs under that name? None: the world knows nothing of that name."""
        ...
