"""Which releases would lead the same Topics, and which of them leads."""

from __future__ import annotations

from typing import Any

import pytest

from smq_operator.kube.preflight.conflicting_releases import find_conflicting_release, led_namespace_of
from smq_operator.kube.settings import KubeSettings
from support.kube.chart import of_kind, render


def release(home: str, namespace: str = "") -> KubeSettings:
    return KubeSettings(filer_url="s3://smq", release="smq", namespace=namespace, POD_NAMESPACE=home)


WIDE, NARROW = release("home"), release("home", "home")


def operator(release: str, namespace: str, at: int, *, wide: bool = True) -> dict[str, Any]:
    """The Deployment as the chart has it, made in that second."""
    made = render({"operator": {"clusterWide": wide}}, name=release, namespace=namespace)
    deployment = of_kind(made, "Deployment")[f"{release}-operator"]
    deployment["metadata"]["creationTimestamp"] = f"2024-01-01T00:00:{at:02}Z"
    return deployment


def test_where_an_operator_leads_is_in_its_flags() -> None:
    assert led_namespace_of(operator("a", "there", 1)) == ""
    narrow = operator("a", "there", 1, wide=False)
    assert led_namespace_of(narrow) == "there"
    narrow["spec"]["template"]["spec"]["containers"][0]["args"] = ["kube", "--namespace", "x", "--log-level=info"]
    assert led_namespace_of(narrow) == "x"
    narrow["spec"]["template"]["spec"]["containers"][0]["args"] = ["kube", "--namespace"]
    assert led_namespace_of(narrow) == ""


@pytest.mark.parametrize("own", [WIDE, NARROW], ids=["wide", "narrow"])
def test_an_operator_does_not_conflict_with_itself(own: KubeSettings) -> None:
    assert find_conflicting_release(own, []) is None
    assert find_conflicting_release(own, [operator("smq", "home", 1, wide=own is WIDE)]) is None


def test_an_operator_whose_deployment_a_deployment_tool_has_labelled_is_its_own() -> None:
    """Argo CD sets this label to the name of its Application."""
    own = operator("smq", "home", 1)
    own["metadata"]["labels"]["app.kubernetes.io/instance"] = "production-queue"
    assert find_conflicting_release(WIDE, [own]) is None
    selected = dict(part.partition("=")[::2] for part in WIDE.selector.split(","))
    assert selected.items() <= own["metadata"]["labels"].items()


@pytest.mark.parametrize("at", [1, 9])
@pytest.mark.parametrize(
    ("own", "namespace", "wide", "conflicts"),
    [
        (WIDE, "home", True, True),
        (WIDE, "home", False, True),
        (WIDE, "away", True, True),
        (WIDE, "away", False, True),
        (NARROW, "home", True, True),
        (NARROW, "home", False, True),
        (NARROW, "away", True, True),
        (NARROW, "away", False, False),
    ],
)
def test_of_conflicting_releases_the_first_one_leads(
    own: KubeSettings, namespace: str, wide: bool, conflicts: bool, at: int
) -> None:
    found = find_conflicting_release(
        own, [operator("smq", "home", 5, wide=own is WIDE), operator("other", namespace, at, wide=wide)]
    )
    assert (found is not None) == conflicts
    if found is not None:
        assert found.own_is_older == (at > 5)
        assert f"release other in namespace {namespace} would lead the same Topics as release smq" in found.message
        assert "operator.clusterWide=false" in found.message


def test_releases_of_one_name_in_two_namespaces_are_distinguished() -> None:
    found = find_conflicting_release(
        WIDE, [operator("smq", "home", 5), operator("smq", "away", 9), operator("x", "home", 9)]
    )
    assert found is not None and found.own_is_older
    assert "release smq in namespace away (and 1 more) would lead" in found.message
    assert "smq in namespace home is older, and leads" in found.message


def test_one_that_cannot_see_the_other_is_said_to_lead_too() -> None:
    narrow = operator("b", "away", 9, wide=False)
    found = find_conflicting_release(WIDE, [operator("smq", "home", 5), narrow])
    assert found is not None and "the other cannot see it: both lead" in found.message
    older = find_conflicting_release(WIDE, [operator("smq", "home", 5), operator("b", "away", 1, wide=False)])
    assert older is not None and "b in namespace away is older, and leads" in older.message


def test_of_two_of_the_same_second_both_see_the_same_one_first() -> None:
    both = [operator("smq", "home", 5), operator("smq", "away", 5)]
    here, there = find_conflicting_release(WIDE, both), find_conflicting_release(release("away"), both)
    assert here is not None and there is not None
    assert (here.own_is_older, there.own_is_older) == (False, True)


def test_one_whose_own_deployment_is_not_there_gives_way() -> None:
    found = find_conflicting_release(WIDE, [operator("other", "away", 1)])
    assert found is not None and not found.own_is_older


def test_a_release_that_is_being_deleted_does_not_conflict() -> None:
    other = operator("other", "home", 1)
    assert find_conflicting_release(WIDE, [operator("smq", "home", 9), other]) is not None
    other["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:30Z"
    assert find_conflicting_release(WIDE, [operator("smq", "home", 9), other]) is None
