"""Finds other releases whose operators lead the same Topics. Of these releases, the oldest one leads.

The flags of an operator's Deployment say whose Topics it leads. An operator that is bound to a Namespace sees only that
one. So a release that leads all Namespaces looks for it, records an Event in its Namespace, and does not lead if the
other release is older.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from smq_operator.kube.client.kinds import Resource
from smq_operator.kube.settings import COMPONENT_LABEL, RELEASE_LABEL, KubeSettings

OPERATOR_SELECTOR = f"{RELEASE_LABEL},{COMPONENT_LABEL}=operator"
NAMESPACE_FLAG = "--namespace"


@dataclass(frozen=True, slots=True)
class ConflictingRelease:
    """The oldest conflicting release. ``own_is_older``: this operator's release is older than it."""

    deployment: Resource
    message: str
    own_is_older: bool


def find_conflicting_release(kube: KubeSettings, operators: Iterable[Resource]) -> ConflictingRelease | None:
    """``operators`` are the operator Deployments of all visible releases."""
    every = [each for each in operators if "deletionTimestamp" not in each["metadata"]]
    ours = [each for each in every if _is_ours(kube, each)]
    others = sorted((each for each in every if not _is_ours(kube, each) and _overlaps(kube, each)), key=_age)
    if not others:
        return None
    oldest, more = others[0], len(others) - 1
    own_is_older = bool(ours) and min(map(_age, ours)) < _age(oldest)
    return ConflictingRelease(oldest, _message(kube, oldest, more, own_is_older), own_is_older)


def _message(kube: KubeSettings, other: Resource, more: int, own_is_older: bool) -> str:
    """A message that fits both releases."""
    mine, theirs = f"{kube.release} in namespace {kube.home}", f"{_release(other)} in namespace {_namespace(other)}"
    here = _namespace(other) == kube.home
    others = f"release {theirs}" + (f" (and {more} more)" if more else "")
    if own_is_older and not here and led_namespace_of(other):
        verdict = f"{mine} is older, but the other cannot see it: both lead, and each reverts the changes of the other"
    else:
        verdict = f"{mine if own_is_older else theirs} is older, and leads"
    if here:
        remedy = "install the other in a Namespace of its own with operator.clusterWide=false"
    else:
        remedy = "let each lead the Topics of its own Namespace only: helm upgrade with operator.clusterWide=false"
    return f"{others} would lead the same Topics as release {mine}: {verdict}. Keep one release, or {remedy}"


def led_namespace_of(deployment: Resource) -> str:
    """The Namespace whose Topics an operator of this Deployment leads; empty for all."""
    found = ""
    arguments = list(_arguments(deployment))
    for at, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if flag == NAMESPACE_FLAG:
            found = value if equals else next(iter(arguments[at + 1 :]), "")
    return found


def _overlaps(kube: KubeSettings, other: Resource) -> bool:
    # Two releases in one Namespace also share its Pods and Services, whatever they lead.
    return _namespace(other) == kube.home or not kube.namespace or led_namespace_of(other) in ("", kube.namespace)


def _arguments(deployment: Resource) -> Iterator[str]:
    for container in deployment["spec"]["template"]["spec"].get("containers") or ():
        yield from (str(each) for each in container.get("args") or ())


def _is_ours(kube: KubeSettings, deployment: Resource) -> bool:
    return (_namespace(deployment), _release(deployment)) == (kube.home, kube.release)


def _namespace(deployment: Resource) -> str:
    namespace: str = deployment["metadata"]["namespace"]
    return namespace


def _release(deployment: Resource) -> str:
    release: str = deployment["metadata"]["labels"].get(RELEASE_LABEL, "")
    return release


def _age(deployment: Resource) -> tuple[str, str, str]:
    metadata = deployment["metadata"]
    return metadata["creationTimestamp"], metadata["namespace"], metadata["name"]
