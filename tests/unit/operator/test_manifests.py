"""The folder of manifests: what people do to files, and what becomes of the topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from smq_core.errors import InvalidManifest, UnknownTopic
from smq_operator.local.manifests import MISSING_FOR, Manifests
from smq_storage.annotate import annotated
from smq_storage.manifest import AUTOSCALING
from support.leader_process import manifest


class Clock:
    now = 0

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def manifests(tmp_path: Path, clock: Clock) -> Manifests:
    return Manifests(tmp_path, clock)


def test_files_of_any_name_are_topics(manifests: Manifests, tmp_path: Path):
    (tmp_path / "whatever.yml").write_text(manifest("a"))
    (tmp_path / "b.json").write_text(manifest("b"))
    (tmp_path / ".hidden.yaml").write_text(manifest("c"))
    (tmp_path / "notes.txt").write_text("nothing")
    assert manifests.scan()
    assert set(manifests.wishes()) == {"default/a", "default/b"}
    assert not manifests.scan(), "nothing changed since"


def test_apply_writes_one_file_and_keeps_to_it(manifests: Manifests, tmp_path: Path):
    assert manifests.apply(manifest("a")) == ("default/a", "created")
    assert manifests.apply(manifest("a")) == ("default/a", "unchanged")
    assert manifests.apply(manifest("a", replicas=3)) == ("default/a", "configured")
    assert [path.name for path in tmp_path.iterdir()] == ["default.a.yaml"]
    (tmp_path / "default.a.yaml").rename(tmp_path / "mine.yaml")
    manifests.apply(manifest("a", replicas=2))
    assert manifests.wishes()["default/a"].spec.replicas == 2


def test_apply_does_not_write_over_another_topics_file(manifests: Manifests, tmp_path: Path):
    (tmp_path / "default.a.yaml").write_text(manifest("b"))
    manifests.apply(manifest("a"))
    assert set(manifests.wishes()) == {"default/a", "default/b"}


def test_what_cannot_change_is_refused_and_nothing_is_written(manifests: Manifests, tmp_path: Path):
    manifests.apply(manifest("a"))
    before = (tmp_path / "default.a.yaml").read_text()
    with pytest.raises(InvalidManifest, match="partitions"):
        manifests.apply(manifest("a", partitions=8))
    assert (tmp_path / "default.a.yaml").read_text() == before


def test_a_file_that_is_damaged_leaves_its_topic_as_it_was(manifests: Manifests, tmp_path: Path):
    path = tmp_path / "a.yaml"
    path.write_text(manifest("a"))
    manifests.scan()
    path.write_text("kind: [")
    assert manifests.scan()
    wish = manifests.wishes()["default/a"]
    assert wish.problem is not None and "a.yaml" in wish.problem
    assert [p.where for p in manifests.problems()] == ["a.yaml"]
    path.write_text(manifest("a"))
    manifests.scan()
    assert manifests.wishes()["default/a"].problem is None and not manifests.problems()


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"", b"[]", b"kind: Other"])
def test_any_content_is_at_worst_a_problem(manifests: Manifests, tmp_path: Path, content: bytes):
    (tmp_path / "x.yaml").write_bytes(content)
    (tmp_path / "good.yaml").write_text(manifest("good"))
    (tmp_path / "folder.yaml").mkdir()
    manifests.scan()
    assert set(manifests.wishes()) == {"default/good"}
    assert {p.where for p in manifests.problems()} == {"x.yaml", "folder.yaml"}


def test_a_file_that_an_editor_replaces_does_not_delete_the_topic(manifests: Manifests, tmp_path: Path, clock: Clock):
    path = tmp_path / "a.yaml"
    path.write_text(manifest("a"))
    manifests.scan()
    path.unlink()
    manifests.scan()
    clock.now += MISSING_FOR
    manifests.scan()
    assert "default/a" in manifests.wishes()
    path.write_text(manifest("a", replicas=3))
    manifests.scan()
    assert manifests.wishes()["default/a"].spec.replicas == 3


def test_a_file_that_stays_away_ends_the_wish(manifests: Manifests, tmp_path: Path, clock: Clock):
    path = tmp_path / "a.yaml"
    path.write_text(manifest("a"))
    manifests.scan()
    path.unlink()
    manifests.scan()
    clock.now += MISSING_FOR + 1
    assert manifests.scan()
    assert not manifests.wishes()


def test_of_two_files_for_one_topic_the_first_counts(manifests: Manifests, tmp_path: Path):
    (tmp_path / "1.yaml").write_text(manifest("a", replicas=2))
    (tmp_path / "2.yaml").write_text(manifest("a", replicas=3))
    manifests.scan()
    assert manifests.wishes()["default/a"].spec.replicas == 2
    assert "1.yaml already" in manifests.problems()[0].message


def test_delete_removes_every_file_of_the_topic(manifests: Manifests, tmp_path: Path):
    (tmp_path / "1.yaml").write_text(manifest("a"))
    (tmp_path / "2.yaml").write_text(manifest("a"))
    manifests.delete("default/a")
    assert not list(tmp_path.iterdir()) and not manifests.wishes()
    with pytest.raises(UnknownTopic):
        manifests.delete("default/a")


def test_a_folder_that_is_not_there_is_empty(tmp_path: Path, clock: Clock):
    manifests = Manifests(tmp_path / "none", clock)
    assert not manifests.scan() and not manifests.wishes()


def test_a_pause_is_written_into_the_manifest_and_stays_when_it_is_applied_again(manifests: Manifests, tmp_path: Path):
    text = f"# mine\n{manifest('a')}"
    manifests.apply(text)
    manifests.set_paused("default/a", True)
    assert manifests.wishes()["default/a"].paused
    assert "# mine" in (tmp_path / "default.a.yaml").read_text()
    assert manifests.apply(text) == ("default/a", "unchanged")
    assert manifests.apply(manifest("a", replicas=3)) == ("default/a", "configured")
    assert manifests.wishes()["default/a"].paused
    manifests.set_paused("default/a", False)
    assert manifests.scan() is False and not manifests.wishes()["default/a"].paused


def test_a_manifest_may_say_that_it_is_paused(manifests: Manifests):
    paused = annotated(manifest("a"), AUTOSCALING, "paused")
    assert manifests.apply(paused) == ("default/a", "created")
    assert manifests.wishes()["default/a"].paused
    assert manifests.apply(annotated(paused, AUTOSCALING, "active")) == ("default/a", "configured")
    assert not manifests.wishes()["default/a"].paused
    with pytest.raises(InvalidManifest, match="'paused' or 'active', not 'off'"):
        manifests.apply(annotated(paused, AUTOSCALING, "off"))


def test_a_file_that_says_nonsense_of_the_pause_is_followed_in_all_else(manifests: Manifests, tmp_path: Path):
    (tmp_path / "a.yaml").write_text(annotated(manifest("a"), AUTOSCALING, "off"))
    manifests.scan()
    wish = manifests.wishes()["default/a"]
    assert not wish.paused and wish.problem is not None and "'off'" in wish.problem
    manifests.set_paused("default/a", True)
    assert manifests.wishes()["default/a"].paused and not manifests.problems()


def test_a_pause_of_what_is_not_there_or_damaged_is_refused(manifests: Manifests, tmp_path: Path):
    with pytest.raises(UnknownTopic):
        manifests.set_paused("default/a", True)
    (tmp_path / "a.yaml").write_text(manifest("a"))
    manifests.scan()
    (tmp_path / "a.yaml").write_text("kind: [")
    with pytest.raises(InvalidManifest, match=r"a\.yaml cannot be changed, mend it first"):
        manifests.set_paused("default/a", True)
    (tmp_path / "a.yaml").unlink()
    with pytest.raises(InvalidManifest, match=r"a\.yaml cannot be read"):
        manifests.set_paused("default/a", True)
    assert not manifests.wishes()["default/a"].paused
