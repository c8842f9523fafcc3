"""Topic manifest files: their documents, and where in them a mistake is."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from smq.cli.files.manifest_files import read_manifests
from smq_core.errors import SpecRejected

TWO = """# two topics
kind: Topic
spec:
  partitions: 16
---
kind: Topic
spec:
  schema:
    - {name: a, type: string}
    - name: b
      type: text
"""


def written(tmp_path: Path, text: str) -> str:
    file = tmp_path / "topics.yaml"
    file.write_text(text)
    return str(file)


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("spec.schema[1].type: has no type 'text'", 11),
        ("spec.schema[0].type: what", 9),
        ("spec.schema[7].type: what", 8),
        ("spec.segments.min: what", 7),
        ("kind: must be Topic", 6),
        ("metadata.name: is missing", 6),
        ("the manifest is wrong", 6),
    ],
)
def test_a_mistake_is_at_the_line_of_its_field(tmp_path: Path, message: str, line: int) -> None:
    file = written(tmp_path, TWO)
    assert read_manifests(file)[1].locate(message) == f"{file}:{line}: {message}"


def test_each_mistake_of_a_manifest_has_its_own_line(tmp_path: Path) -> None:
    file = written(tmp_path, TWO)
    located = read_manifests(file)[0].locate("kind: what\nspec.partitions cannot change")
    assert located == f"{file}:2: kind: what\n{file}:4: spec.partitions cannot change"


def test_a_single_manifest_is_sent_as_it_is_written_and_several_one_by_one(tmp_path: Path) -> None:
    single = TWO.partition("---")[0]
    assert [it.text for it in read_manifests(written(tmp_path, single))] == [single]
    texts = [it.text for it in read_manifests(written(tmp_path, f"---\n{TWO}---\n"))]
    assert [yaml.safe_load(text)["kind"] for text in texts] == ["Topic", "Topic"]


@pytest.mark.parametrize(("text", "line"), [("a: 1\nb: [\n", 3), ("a: 1\n  b: 2\n", 2), ("a: \x01\n", None)])
def test_what_is_not_yaml_is_refused_with_its_line(tmp_path: Path, text: str, line: int | None) -> None:
    file = written(tmp_path, text)
    with pytest.raises(SpecRejected) as caught:
        read_manifests(file)
    assert caught.value.message.startswith(f"{file}:{line}: not YAML: " if line else f"{file}: not YAML: ")
