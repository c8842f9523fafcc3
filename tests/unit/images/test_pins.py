"""The images' requirements are those of pyproject.toml, each pinned to one version and its files."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

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


@pytest.mark.parametrize("extra", ["broker", "operator"])
def test_an_image_gets_what_the_project_requires(extra: str) -> None:
    pinned = pins(extra)
    wrong = [str(r) for r in wanted(extra) if pinned.get(canonicalize_name(r.name), Version("0")) not in r.specifier]
    assert not wrong, f"run `make pins`: {wrong}"


def test_both_images_speak_with_the_same_versions() -> None:
    broker, operator = pins("broker"), pins("operator")
    common = broker.keys() & operator.keys()
    assert {"grpcio", "protobuf", "pyarrow"} <= common
    assert {name: operator[name] for name in common} == {name: broker[name] for name in common}


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


def test_only_what_is_copied_reaches_a_builder() -> None:
    allowed = {line[1:].split("/")[0] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"}
    copied = set()
    for name in ("broker", "operator"):
        for line in re.findall(r"^COPY (?!--)(.*) \S+$", (ROOT / f"Dockerfile.{name}").read_text(), re.M):
            copied |= {source.split("/")[0] for source in line.split()}
    assert copied == allowed
