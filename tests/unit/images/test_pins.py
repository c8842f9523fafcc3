"""The images' requirements are those of pyproject.toml, each pinned to one version and its files."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tools.spark_jars import COPY

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINNED = re.compile(
    r"^(?P<name>[A-Za-z0-9_.-]+)==(?P<version>[^\s;\\]+)(?P<rest>(?:.*\\\n)(?: +--hash=sha256:.*\n?)+)", re.M
)


def pins(name: str) -> dict[str, Version]:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    found = {canonicalize_name(m["name"]): Version(m["version"]) for m in PINNED.finditer(text)}
    assert len(found) == len(re.findall(r"^[^ ]", text, re.M)), "a requirement without a hash, or twice"
    return found


def wanted(extra: str) -> list[Requirement]:
    project = PROJECT["project"]
    return [Requirement(text) for text in [*project["dependencies"], *project["optional-dependencies"][extra]]]


@pytest.mark.parametrize("extra", ["broker", "operator", "spark"])
def test_an_image_gets_what_the_project_requires(extra: str) -> None:
    pinned = pins(extra)
    wrong = [str(r) for r in wanted(extra) if pinned.get(canonicalize_name(r.name), Version("0")) not in r.specifier]
    assert not wrong, f"run `make pins`: {wrong}"


@pytest.mark.parametrize("other", ["operator", "spark"])
def test_all_images_speak_with_the_same_versions(other: str) -> None:
    broker, others = pins("broker"), pins(other)
    common = broker.keys() & others.keys()
    assert {"grpcio", "protobuf", "pyarrow"} <= common
    assert {name: others[name] for name in common} == {name: broker[name] for name in common}


def test_the_wheel_is_built_by_a_pinned_builder() -> None:
    for text in PROJECT["build-system"]["requires"]:
        requirement = Requirement(text)
        assert pins("build")[requirement.name] in requirement.specifier


@pytest.mark.parametrize("name", ["broker", "operator"])
def test_an_image_is_confined(name: str) -> None:
    text = (ROOT / f"Dockerfile.{name}").read_text()
    assert "\nUSER 65532:65532\n" in text, "not root"
    assert text.count("--require-hashes") == 2
    assert text.count("\nFROM $BASE") == 2, "what builds is not what is shipped"
    final = text.rpartition("\nFROM ")[2]
    assert "RUN" not in final and "ADD" not in final


def test_sparks_image_is_confined_and_ships_nothing_that_builds() -> None:
    text = (ROOT / "Dockerfile.spark").read_text()
    stages = re.findall(r"^FROM (\S+)(?: AS (\w+))?$", text, re.M)
    assert stages == [("$BASE", "java"), ("java", "jars"), ("$BASE", "build"), ("java", "")]
    assert text.count("--require-hashes") == 2
    java = text.partition("AS java\n")[2].partition("\nFROM ")[0]
    assert "openjdk-17-jre-headless" in java and "maven" not in java
    assert "smq:x:65532:65532:" in java, "Hadoop does not start as a user without a name"
    final = text.rpartition("\nFROM ")[2]
    assert "\nUSER 65532:65532\n" in final and "RUN" not in final and "ADD" not in final


def test_the_jars_of_sparks_image_are_those_that_the_tool_fetches() -> None:
    assert f"{COPY} " in re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile.spark").read_text())
    assert "COPY spark/jars/pom.xml" in (ROOT / "Dockerfile.spark").read_text()


def test_only_what_is_copied_reaches_a_builder() -> None:
    allowed = {line[1:].split("/")[0] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"}
    copied = set()
    for name in ("broker", "operator", "spark"):
        for line in re.findall(r"^COPY (?!--)(.*) \S+$", (ROOT / f"Dockerfile.{name}").read_text(), re.M):
            copied |= {source.split("/")[0] for source in line.split()}
    assert copied == allowed
