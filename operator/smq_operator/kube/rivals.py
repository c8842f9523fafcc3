"""Other releases whose operators lead the same Topics: the release that was there first has them.

Where an operator leads is in the flags of its Deployment. One that is bound to a Namespace sees only that one: another
release that leads all of them sees it, tells by an Event in its Namespace, and lets it lead if it was there first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from smq_operator.kube.kinds import Resource
from smq_operator.kube.settings import COMPONENT, INSTANCE, NAME, KubeSettings

SELECTOR = f"{NAME}=seaweedmq,{COMPONENT}=operator"
FLAG = "--namespace"


@dataclass(frozen=True, slots=True)
class Rival:
    """The oldest one. ``first``: this operator's own release was there before it."""

    deployment: Resource
    message: str
    first: bool


def rival_of(kube: KubeSettings, operators: Iterable[Resource]) -> Rival | None:
    """``operators`` are the operators' Deployments of all releases that can be seen."""
    every = [each for each in operators if "deletionTimestamp" not in each["metadata"]]
    ours = [each for each in every if _is_ours(kube, each)]
    others = sorted((each for each in every if not _is_ours(kube, each) and _overlaps(kube, each)), key=_age)
    if not others:
        return None
    oldest, more = others[0], len(others) - 1
    first = bool(ours) and min(map(_age, ours)) < _age(oldest)
    return Rival(oldest, _words(kube, oldest, more, first), first)


def _words(kube: KubeSettings, other: Resource, more: int, first: bool) -> str:
    """For people who look at either of the two."""
    mine, theirs = f"{kube.release} in namespace {kube.home}", f"{_release(other)} in namespace {_namespace(other)}"
    here = _namespace(other) == kube.home
    others = f"release {theirs}" + (f" (and {more} more)" if more else "")
    if first and not here and leads(other):
        verdict = f"{mine} was there first, but the other cannot see it: both lead, and undo what the other does"
    else:
        verdict = f"{mine if first else theirs} was there first, and leads"
    if here:
        remedy = "install the other in a Namespace of its own with operator.clusterWide=false"
    else:
        remedy = "let each lead the Topics of its own Namespace only: helm upgrade with operator.clusterWide=false"
    return f"{others} would lead the same Topics as release {mine}: {verdict}. Keep one release, or {remedy}"


def leads(deployment: Resource) -> str:
    """The Namespace whose Topics an operator of this Deployment leads; empty: all."""
    found = ""
    arguments = list(_arguments(deployment))
    for at, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if flag == FLAG:
            found = value if equals else next(iter(arguments[at + 1 :]), "")
    return found


def _overlaps(kube: KubeSettings, other: Resource) -> bool:
    # Two of one Namespace share its Pods and Services too, whatever they lead.
    return _namespace(other) == kube.home or not kube.namespace or leads(other) in ("", kube.namespace)


def _arguments(deployment: Resource) -> Iterator[str]:
    for container in deployment["spec"]["template"]["spec"].get("containers") or ():
        yield from (str(each) for each in container.get("args") or ())


def _is_ours(kube: KubeSettings, deployment: Resource) -> bool:
    return (_namespace(deployment), _release(deployment)) == (kube.home, kube.release)


def _namespace(deployment: Resource) -> str:
    namespace: str = deployment["metadata"]["namespace"]
    return namespace


def _release(deployment: Resource) -> str:
    release: str = deployment["metadata"]["labels"].get(INSTANCE, "")
    return release


def _age(deployment: Resource) -> tuple[str, str, str]:
    metadata = deployment["metadata"]
    return metadata["creationTimestamp"], metadata["namespace"], metadata["name"]
