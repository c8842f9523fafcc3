"""The version's home is pyproject.toml; whatever must repeat it says the same."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]
VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
IN_PAGES = re.compile(
    r"(?:seaweedmq/(?:broker|operator|spark):|image\.tag=|seaweedmq-(?:broker-|operator-)?)(\d+\.\d+\.\d+)"
)


def test_the_chart_has_the_projects_version() -> None:
    chart = yaml.safe_load((ROOT / "charts/seaweedmq/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


def test_pages_name_files_and_images_of_this_version() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    named = [(page.name, version) for page in pages for version in IN_PAGES.findall(page.read_text())]
    assert len(named) > 10
    assert {version for _, version in named} == {VERSION}, named
