from __future__ import annotations

from pathlib import Path

import pytest
import structlog

from smq_core.errors import InvalidRequest
from smq_operator.security.access.policy_file import PolicyFile
from smq_operator.security.watched_file import MAX_FILE_BYTES, WatchedFile, from_yaml


def parse(document: object) -> str:
    if not isinstance(document, str):
        raise InvalidRequest("no text")
    return document


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "file.yaml"
    made.write_text("first")
    return made


def test_a_file_is_read_anew_when_it_has_changed(path: Path) -> None:
    file = WatchedFile(path, from_yaml(parse))
    assert file.current() == "first"
    path.write_text("second")
    assert file.current() == "second"


@pytest.mark.parametrize("content", ["[", "[1]", "'secret", "x" * (MAX_FILE_BYTES + 1), "&a [*a]", None])
def test_a_damaged_file_changes_nothing_and_is_reported_once(path: Path, content: str | None) -> None:
    file = WatchedFile(path, from_yaml(parse))
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    with structlog.testing.capture_logs() as logs:
        assert file.current() == file.current() == "first"
    assert [entry["event"] for entry in logs] == ["security_file.rejected"]
    assert "secret" not in str(logs)
    path.write_text("third")
    assert file.current() == "third"


@pytest.mark.parametrize("content", ["[", "[1]", None])
def test_a_leader_does_not_start_with_a_damaged_file(path: Path, content: str | None) -> None:
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(InvalidRequest, match=str(path)):
        WatchedFile(path, from_yaml(parse))


def test_a_policy_that_allows_everybody_everything_by_mistake_is_none(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("")
    with pytest.raises(InvalidRequest, match=r"policy\.yaml"):
        PolicyFile(path)
