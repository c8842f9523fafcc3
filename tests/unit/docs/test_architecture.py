"""The map in docs/architecture.md is that of the tree: folders, files, and the functions of its three journeys."""

from __future__ import annotations

import re
import subprocess
from pathlib import PurePosixPath

from tools.site_links import DOCS, ROOT

PAGE = (DOCS / "architecture.md").read_text()
# A folder of these has a row above it that describes it well enough
DESCRIBED_AS_A_WHOLE = ("tests", "benchmarks", "examples", "charts/seaweedmq", "proto/smq_proto")
CODE = (".py", ".proto", ".html")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def named_folders() -> set[str]:
    rows = re.findall(r"^\| ([^|]+) \|", section("Packages and subpackages"), re.MULTILINE)
    return {folder for row in rows for folder in re.findall(r"`([^`]+)`", row)}


def folders_with_code() -> set[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [PurePosixPath(line) for line in listed.stdout.splitlines()]
    return {file.parent.as_posix() for file in files if file.suffix in CODE and (ROOT / file).exists()}


def defines(source: str, name: str) -> bool:
    return re.search(rf"\b(class|def) {name}\b", source) is not None


def test_each_folder_with_code_is_in_the_table() -> None:
    named = named_folders()
    assert len(named) > 50 and named.issuperset(DESCRIBED_AS_A_WHOLE)
    whole = tuple(f"{folder}/" for folder in DESCRIBED_AS_A_WHOLE)
    missing = {folder for folder in folders_with_code() - named if not folder.startswith(whole)}
    assert not missing, "docs/architecture.md needs a row for each of these folders"


def test_each_folder_in_the_table_exists() -> None:
    assert not {folder for folder in named_folders() if not (ROOT / folder).is_dir()}


def test_each_path_on_the_page_exists() -> None:
    paths = {path for path in re.findall(r"`([a-z][\w.-]*(?:/[\w.*{}-]+)+)`", PAGE) if not path.startswith("smq/")}
    assert len(paths) > 100
    assert not {path for path in paths if not any(ROOT.glob(path))}


def test_the_files_of_a_step_have_the_functions_that_it_names() -> None:
    wrong, seen = [], 0
    for step, files, names in re.findall(r"^\| (\d+a?)\. [^|]*\|([^|]*)\|([^|]*)\|$", PAGE, re.MULTILINE):
        sources = "".join((ROOT / file).read_text() for file in re.findall(r"`([^`]+\.py)`", files))
        for name in re.findall(r"`([^`]+)`", names):
            seen += 1
            wrong += [(step, files, part) for part in name.split(".") if not defines(sources, part)]
    assert seen > 50 and not wrong


def test_the_files_of_an_answer_have_the_functions_that_it_names() -> None:
    wrong = []
    for path, name in re.findall(r"`([\w./-]+\.py)` \(`(\w+)`", section("Where is the code that …")):
        if "/" in path and not defines((ROOT / path).read_text(), name):
            wrong.append((path, name))
    assert not wrong
