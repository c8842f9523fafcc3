"""The helm commands of the pages for operators are valid for this chart, and their commands name what is there."""

from __future__ import annotations

import itertools
import shlex
from typing import Any

import helm_python as helm
import pytest

from support.doc_blocks import REPOSITORY, console_blocks
from support.kube.chart import CHART, of_kind, render

PAGES = ("docs/configuration.md", "docs/maintenance.md", "docs/operations.md")
COMMANDS = [
    shlex.split(command, comments=True) for page in PAGES for block in console_blocks(page) for command, _ in block
]
(INSTALL,) = [words for words in COMMANDS if words[:2] == ["helm", "install"]]
UPGRADES = [words for words in COMMANDS if words[:2] == ["helm", "upgrade"]]
NAMESPACE = ["-n", "queue"]


def expressions_of(words: list[str]) -> list[str]:
    """The arguments of ``--set``. All other arguments are those of the release."""
    *release, _ = " ".join(words).partition(" --set ")
    assert release[0].split()[2:4] == ["smq", str(CHART.relative_to(REPOSITORY))]
    assert set(release[0].split()[4:]) <= {*NAMESPACE, "--create-namespace", "--reset-then-reuse-values"}
    return [given for option, given in itertools.pairwise(words) if option == "--set"]


def rendered(words: list[str]) -> list[dict[str, Any]]:
    """What the command makes: an upgrade has the values of the installation, too."""
    given = [*expressions_of(INSTALL), *(expressions_of(words) if "--reset-then-reuse-values" in words else ())]
    values = helm.parse_set_string(",".join(given))
    return sorted(render(values, name=words[2], namespace="queue"), key=lambda r: (r["kind"], r["metadata"]["name"]))


def test_the_commands_are_found() -> None:
    assert [words[0] for words in COMMANDS].count("helm") == 4
    assert len(UPGRADES) == 2


def test_every_command_is_about_the_release_of_the_pages() -> None:
    about_it = [words for words in COMMANDS if words[0] == "helm" or any("/smq-" in word for word in words)]
    assert [words for words in about_it if NAMESPACE[1] not in words] == []


def test_the_installation_is_rendered() -> None:
    assert rendered(INSTALL)
    filer = of_kind(rendered(INSTALL), "Deployment")["smq-operator"]["spec"]["template"]["spec"]
    assert all(given.partition("=")[2] in str(filer) for given in expressions_of(INSTALL))


@pytest.mark.parametrize("words", UPGRADES, ids=" ".join)
def test_an_upgrade_is_rendered_and_changes_something(words: list[str]) -> None:
    assert "--reset-then-reuse-values" in words
    assert rendered(words) != rendered(INSTALL)


def test_the_deployments_and_the_port_are_there() -> None:
    deployments = of_kind(rendered(INSTALL), "Deployment")
    named = {word.partition("/")[2] for words in COMMANDS for word in words if word.startswith("deployment/")}
    assert named == set(deployments)
    (port,) = [int(words[-1]) for words in COMMANDS if words[:2] == ["kubectl", "port-forward"]]
    (container,) = deployments["smq-operator"]["spec"]["template"]["spec"]["containers"]
    assert port in {it["containerPort"] for it in container["ports"] if it["name"] == "http"}


def test_the_release_has_a_test() -> None:
    hooks = [r for r in rendered(INSTALL) if r["metadata"].get("annotations", {}).get("helm.sh/hook") == "test"]
    assert "Pod" in {hook["kind"] for hook in hooks}
    assert ["helm", "test", "smq", *NAMESPACE] in COMMANDS
