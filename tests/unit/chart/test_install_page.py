"""The commands of docs/install.md are valid for this chart, and use the images that the page builds."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.kube.chart import CHART, render, workloads

REPOSITORY = Path(__file__).resolve().parents[3]
PAGE = (REPOSITORY / "docs" / "install.md").read_text()
COMMANDS = [
    command.replace("\\\n", " ").strip()
    for block in re.findall(r"^ *```console\n(.*?)^ *```", PAGE, re.MULTILINE | re.DOTALL)
    for command in re.split(r"^ *\$ ", block, flags=re.MULTILINE)[1:]
]
INSTALLS = [command for command in COMMANDS if command.startswith("helm install")]
VERSION = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]


def values_of(command: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    words = shlex.split(command)
    for option, given in itertools.pairwise(words):
        if option == "--set":
            path, _, text = given.partition("=")
            *parents, last = path.split(".")
            node = values
            for parent in parents:
                node = node.setdefault(parent, {})
            node[last] = text == "true" if text in ("true", "false") else text
    return values


@pytest.mark.parametrize("command", INSTALLS)
def test_the_chart_takes_the_values_and_uses_the_built_images(command: str) -> None:
    built = {word for line in COMMANDS if line.startswith("docker build") for word in line.split() if ":" in word}
    assert len(built) == 2
    used = {
        container["image"]
        for template in workloads(render(values_of(command))).values()
        for container in template["spec"]["containers"]
    }
    assert built <= used
    assert all("ghcr.io" not in image for image in used), used


def test_the_page_is_of_this_version() -> None:
    assert len(INSTALLS) == 2
    assert set(re.findall(r"seaweedmq/\w+:(\S+)", PAGE)) == {VERSION}


def test_the_dockerfiles_are_there() -> None:
    named = set(re.findall(r"Dockerfile\.\w+", PAGE))
    assert named == {path.name for path in REPOSITORY.glob("Dockerfile.*")}
