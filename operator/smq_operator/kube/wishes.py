"""Topic resources as wishes. One that cannot be followed keeps its last good spec and says why.

Of one with fields that this operator does not know, since the definition is newer, the rest is followed: a topic that
is not led would not be handed over either when brokers are replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from smq_core.errors import InvalidManifest
from smq_operator.kube.kinds import Key, Resource
from smq_operator.world import Problem, Wish
from smq_storage.manifest import parse_served


class Wishes:
    """Follows the Topics one by one."""

    def __init__(self) -> None:
        self._wishes: dict[str, Wish] = {}
        self._problems: dict[str, Problem] = {}

    def take(self, key: Key, topic: Resource | None) -> None:
        """The Topic is so now; None: it is gone. One that is being deleted is wished no more."""
        name = "/".join(key)
        if topic is None or topic["metadata"].get("deletionTimestamp"):
            self._wishes.pop(name, None)
            self._problems.pop(name, None)
            return
        uid: str = topic["metadata"]["uid"]
        try:
            manifest, unknown = parse_served(topic)
        except InvalidManifest as error:
            self._problems[name] = Problem(f"topic {name}", error.message)
            old = self._wishes.get(name)
            if old is not None and old.uid == uid:
                self._wishes[name] = replace(old, problem=error.message)
            else:
                self._wishes.pop(name, None)
            return
        self._problems.pop(name, None)
        problem = _not_known(unknown) if unknown else None
        self._wishes[name] = Wish(name, manifest.spec, uid=uid, problem=problem, paused=manifest.paused)

    def all(self) -> Mapping[str, Wish]:
        return self._wishes

    def problems(self) -> list[Problem]:
        return [self._problems[name] for name in sorted(self._problems)]


def _not_known(fields: list[str]) -> str:
    which = ", ".join(fields)
    return (
        f"this operator is older than the definition of Topic, and does not know {which}: the rest of the spec is "
        "followed. Upgrade the operator, or take it out"
    )
