"""What `smq apply` and `smq topic alter` change, and what they do not change without a confirmation."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from smq import AlteredTopic, AppliedTopic, TopicChange
from smq.cli.app import app
from smq.cli.commands import topic_changes

MANIFEST = "apiVersion: seaweedmq.io/v1alpha1\nkind: Topic\nmetadata: {name: t}\nspec: {}\n"
LOWERED = TopicChange("retention.age: 30d → 7d (default)", "messages older than 7d are removed")
RAISED = TopicChange("retention.age: 7d → 30d")


class FakeAdmin:
    """A topic for which every change is this one. It counts what was done."""

    def __init__(self, change: TopicChange) -> None:
        self.changes: tuple[TopicChange, ...] = (change,)
        self.done = 0
        self.settings: dict[str, object] = {}

    def admin(self) -> FakeAdmin:
        return self

    def __enter__(self) -> FakeAdmin:
        return self

    def __exit__(self, *_: object) -> None: ...

    def brokers(self) -> list[object]:
        return []

    def apply(self, manifest: str, *, preview: bool = False) -> AppliedTopic:
        self.done += not preview
        return AppliedTopic(
            topic="default/t", result="configured", changes=self.changes, before="a: 1\n", after="a: 2\n"
        )

    def alter_topic(
        self, topic: str, *, settings: dict[str, object], preview: bool = False, **_: object
    ) -> AlteredTopic:
        self.done += not preview
        self.settings = settings
        return AlteredTopic(
            topic="default/t",
            result="preview" if preview else "configured",
            schema_version=0,
            schema=(),
            changes=self.changes,
        )


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "t.yaml"
    path.write_text(MANIFEST)
    return str(path)


def run(monkeypatch: pytest.MonkeyPatch, admin: FakeAdmin, *line: str, answer: bool | None = None) -> tuple[int, str]:
    """``answer`` is given at the terminal; without one there is no terminal."""
    monkeypatch.setattr(topic_changes, "client", lambda **_: admin)
    if answer is not None:
        monkeypatch.setattr(topic_changes, "confirm", lambda _: answer)
    ran = CliRunner().invoke(app, list(line))
    return ran.exit_code, ran.output


def lines(file: str) -> list[list[str]]:
    return [["apply", "-f", file], ["topic", "alter", "t", "--retention", "7d"]]


@pytest.mark.parametrize("number", [0, 1])
def test_a_change_that_loses_something_is_not_applied_without_a_confirmation(
    number: int, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, admin = lines(file)[number], FakeAdmin(LOWERED)
    code, output = run(monkeypatch, admin, *line)
    assert (code, admin.done) == (1, 0) and str(LOWERED) in output and "add --yes" in output
    code, output = run(monkeypatch, admin, *line, answer=False)
    assert (code, admin.done) == (1, 0) and "topic t is not changed" in output
    assert run(monkeypatch, admin, *line, "--dry-run")[0] == 0 and admin.done == 0
    code, output = run(monkeypatch, admin, *line, answer=True)
    assert (code, admin.done) == (0, 1) and str(LOWERED) in output
    assert run(monkeypatch, admin, *line, "--yes")[0] == 0 and admin.done == 2


@pytest.mark.parametrize("number", [0, 1])
def test_a_change_that_loses_nothing_is_applied_and_shown(
    number: int, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = FakeAdmin(RAISED)
    code, output = run(monkeypatch, admin, *lines(file)[number])
    assert (code, admin.done) == (0, 1) and output.startswith(f"topic t configured\n  {RAISED.text}\n")


def test_a_difference_has_an_exit_code_and_changes_nothing(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    admin = FakeAdmin(LOWERED)
    code, output = run(monkeypatch, admin, "diff", "-f", file)
    assert (code, admin.done) == (1, 0) and "-a: 1\n+a: 2\n" in output
    assert run(monkeypatch, admin, "diff", "-f", f"{file}.none")[0] == topic_changes.FAILED


def test_options_are_the_fields_of_the_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = FakeAdmin(RAISED)
    line = "topic alter t --retention 3d --segments-max 32 --reset spec.retention.bytes --deletion-policy Delete"
    assert run(monkeypatch, admin, *line.split())[0] == 0
    assert admin.settings == {
        "retention.age": "3d",
        "segments.max": 32,
        "retention.bytes": None,
        "deletionPolicy": "Delete",
    }
    admin.changes = ()
    assert run(monkeypatch, admin, *line.split())[1] == "topic t unchanged\n"
    code, output = run(monkeypatch, admin, "topic", "alter", "t")
    assert code == 1 and "nothing to change: add an option" in output
