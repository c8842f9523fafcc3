"""The folder of manifests: what changes of files do to the topics."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from smq_core.errors import Conflict, SpecRejected, UnknownTopic
from smq_core.model.entities import Column
from smq_operator.local.topic_manifests import MISSING_GRACE_US, TopicManifests
from smq_storage.topic_manifests.annotation_editor import set_annotation
from smq_storage.topic_manifests.parser import AUTOSCALING_ANNOTATION, parse_document, schema_fields
from support.processes.leader import manifest

DAY = 86_400_000_000


class ManualClock:
    now = 0

    def __call__(self) -> int:
        return self.now


def apply(manifests: TopicManifests, text: str) -> tuple[str, str]:
    applied = manifests.apply(parse_document(text))
    return applied.topic, applied.result


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def manifests(tmp_path: Path, clock: ManualClock) -> TopicManifests:
    return TopicManifests(tmp_path, clock)


def test_files_of_any_name_are_topics(manifests: TopicManifests, tmp_path: Path):
    (tmp_path / "whatever.yml").write_text(manifest("a"))
    (tmp_path / "b.json").write_text(manifest("b"))
    (tmp_path / ".hidden.yaml").write_text(manifest("c"))
    (tmp_path / "notes.txt").write_text("nothing")
    assert manifests.scan()
    assert set(manifests.desired_topics()) == {"default/a", "default/b"}
    assert not manifests.scan(), "nothing changed since"


def test_what_is_no_file_is_a_problem(manifests: TopicManifests, tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "folder.yaml").mkdir()
    manifests.scan()
    assert {problem.where for problem in manifests.problems()} == {"pipe.yaml", "folder.yaml"}
    assert all("is no file: remove it" in problem.message for problem in manifests.problems())


def test_apply_writes_one_file_and_keeps_to_it(manifests: TopicManifests, tmp_path: Path):
    assert apply(manifests, manifest("a")) == ("default/a", "created")
    assert apply(manifests, manifest("a")) == ("default/a", "unchanged")
    assert apply(manifests, manifest("a", replicas=3)) == ("default/a", "configured")
    assert [path.name for path in tmp_path.iterdir()] == ["default.a.yaml"]
    (tmp_path / "default.a.yaml").rename(tmp_path / "mine.yaml")
    apply(manifests, manifest("a", replicas=2))
    assert manifests.desired_topics()["default/a"].spec.replicas == 2


def test_apply_does_not_write_over_another_topics_file(manifests: TopicManifests, tmp_path: Path):
    (tmp_path / "default.a.yaml").write_text(manifest("b"))
    apply(manifests, manifest("a"))
    assert set(manifests.desired_topics()) == {"default/a", "default/b"}


def test_what_cannot_change_is_refused_and_nothing_is_written(manifests: TopicManifests, tmp_path: Path):
    apply(manifests, manifest("a"))
    before = (tmp_path / "default.a.yaml").read_text()
    with pytest.raises(SpecRejected, match="partitions"):
        apply(manifests, manifest("a", partitions=8))
    assert (tmp_path / "default.a.yaml").read_text() == before


def test_a_file_that_is_damaged_leaves_its_topic_as_it_was(manifests: TopicManifests, tmp_path: Path):
    path = tmp_path / "a.yaml"
    path.write_text(manifest("a"))
    manifests.scan()
    path.write_text("kind: [")
    assert manifests.scan()
    desired = manifests.desired_topics()["default/a"]
    assert desired.problem is not None and "a.yaml" in desired.problem
    assert [p.where for p in manifests.problems()] == ["a.yaml"]
    path.write_text(manifest("a"))
    manifests.scan()
    assert manifests.desired_topics()["default/a"].problem is None and not manifests.problems()


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"", b"[]", b"kind: Other"])
def test_any_content_is_at_worst_a_problem(manifests: TopicManifests, tmp_path: Path, content: bytes):
    (tmp_path / "x.yaml").write_bytes(content)
    (tmp_path / "good.yaml").write_text(manifest("good"))
    (tmp_path / "folder.yaml").mkdir()
    manifests.scan()
    assert set(manifests.desired_topics()) == {"default/good"}
    assert {p.where for p in manifests.problems()} == {"x.yaml", "folder.yaml"}


def test_a_file_that_an_editor_replaces_does_not_delete_the_topic(
    manifests: TopicManifests, tmp_path: Path, clock: ManualClock
):
    path = tmp_path / "a.yaml"
    path.write_text(manifest("a"))
    manifests.scan()
    path.unlink()
    manifests.scan()
    clock.now += MISSING_GRACE_US
    manifests.scan()
    assert "default/a" in manifests.desired_topics()
    path.write_text(manifest("a", replicas=3))
    manifests.scan()
    assert manifests.desired_topics()["default/a"].spec.replicas == 3


def test_a_manifest_that_stays_absent_deletes_the_topic(manifests: TopicManifests, tmp_path: Path, clock: ManualClock):
    path = tmp_path / "a.yaml"
    path.write_text(manifest("a"))
    manifests.scan()
    path.unlink()
    manifests.scan()
    clock.now += MISSING_GRACE_US + 1
    assert manifests.scan()
    assert not manifests.desired_topics()


def test_of_two_files_for_one_topic_the_first_counts(manifests: TopicManifests, tmp_path: Path):
    (tmp_path / "1.yaml").write_text(manifest("a", replicas=2))
    (tmp_path / "2.yaml").write_text(manifest("a", replicas=3))
    manifests.scan()
    assert manifests.desired_topics()["default/a"].spec.replicas == 2
    assert "1.yaml already" in manifests.problems()[0].message


def test_delete_removes_every_file_of_the_topic(manifests: TopicManifests, tmp_path: Path):
    (tmp_path / "1.yaml").write_text(manifest("a"))
    (tmp_path / "2.yaml").write_text(manifest("a"))
    manifests.delete("default/a")
    assert not list(tmp_path.iterdir()) and not manifests.desired_topics()
    with pytest.raises(UnknownTopic):
        manifests.delete("default/a")


def test_a_folder_that_is_not_there_is_empty(tmp_path: Path, clock: ManualClock):
    manifests = TopicManifests(tmp_path / "none", clock)
    assert not manifests.scan() and not manifests.desired_topics()


def test_a_pause_is_written_into_the_manifest_and_stays_when_it_is_applied_again(
    manifests: TopicManifests, tmp_path: Path
):
    text = f"# mine\n{manifest('a')}"
    apply(manifests, text)
    manifests.set_paused("default/a", True)
    assert manifests.desired_topics()["default/a"].paused
    assert "# mine" in (tmp_path / "default.a.yaml").read_text()
    assert apply(manifests, text) == ("default/a", "unchanged")
    assert apply(manifests, manifest("a", replicas=3)) == ("default/a", "configured")
    assert manifests.desired_topics()["default/a"].paused
    manifests.set_paused("default/a", False)
    assert manifests.scan() is False and not manifests.desired_topics()["default/a"].paused


def test_a_manifest_may_say_that_it_is_paused(manifests: TopicManifests):
    paused = set_annotation(manifest("a"), AUTOSCALING_ANNOTATION, "paused")
    assert apply(manifests, paused) == ("default/a", "created")
    assert manifests.desired_topics()["default/a"].paused
    assert apply(manifests, set_annotation(paused, AUTOSCALING_ANNOTATION, "active")) == ("default/a", "configured")
    assert not manifests.desired_topics()["default/a"].paused
    with pytest.raises(SpecRejected, match="'paused' or 'active', not 'off'"):
        apply(manifests, set_annotation(paused, AUTOSCALING_ANNOTATION, "off"))


def test_an_invalid_pause_annotation_does_not_invalidate_the_rest_of_the_manifest(
    manifests: TopicManifests, tmp_path: Path
):
    (tmp_path / "a.yaml").write_text(set_annotation(manifest("a"), AUTOSCALING_ANNOTATION, "off"))
    manifests.scan()
    desired = manifests.desired_topics()["default/a"]
    assert not desired.paused and desired.problem is not None and "'off'" in desired.problem
    manifests.set_paused("default/a", True)
    assert manifests.desired_topics()["default/a"].paused and not manifests.problems()


def test_a_pause_of_what_is_not_there_or_damaged_is_refused(manifests: TopicManifests, tmp_path: Path):
    with pytest.raises(UnknownTopic):
        manifests.set_paused("default/a", True)
    (tmp_path / "a.yaml").write_text(manifest("a"))
    manifests.scan()
    (tmp_path / "a.yaml").write_text("kind: [")
    with pytest.raises(SpecRejected, match=r"a\.yaml cannot be changed, mend it first"):
        manifests.set_paused("default/a", True)
    (tmp_path / "a.yaml").unlink()
    with pytest.raises(SpecRejected, match=r"a\.yaml cannot be read"):
        manifests.set_paused("default/a", True)
    assert not manifests.desired_topics()["default/a"].paused


def test_a_preview_writes_nothing_and_says_what_would_change(manifests: TopicManifests, tmp_path: Path):
    new = manifests.apply(parse_document(manifest("a")), preview=True)
    assert (new.result, new.before) == ("created", None) and not list(tmp_path.iterdir())
    apply(manifests, manifest("a"))
    changed = manifests.apply(parse_document(manifest("a", replicas=3)), preview=True)
    assert changed.result == "configured" and changed.before is not None
    assert (changed.before.spec.replicas, changed.after.spec.replicas) == (2, 3)
    assert manifests.desired_topics()["default/a"].spec.replicas == 2 and manifests.scan() is False


def test_columns_and_settings_are_written_into_the_manifest(manifests: TopicManifests, tmp_path: Path):
    new = (Column("id", "int64"), Column("gate", "uint8", nullable=True))
    apply(manifests, "# mine\n" + manifest("a", schema=[{"name": "id", "type": "int32"}]))
    before = manifests.desired_topics()["default/a"].spec
    with pytest.raises(Conflict, match="changed meanwhile"):
        manifests.change_spec("default/a", replace(before, schema=new), {"schema": schema_fields(new)})
    manifests.change_spec("default/a", before, {"schema": schema_fields(new), "retention": {"age": "3d"}})
    assert manifests.desired_topics()["default/a"].spec.schema == new
    assert "# mine" in (tmp_path / "default.a.yaml").read_text()
    with pytest.raises(SpecRejected, match="complex64"):
        wrong = schema_fields((Column("id", "complex64"),))
        manifests.change_spec("default/a", replace(before, schema=new, retention_age=3 * DAY), {"schema": wrong})
    assert manifests.scan() is False and manifests.desired_topics()["default/a"].spec.schema == new
    with pytest.raises(UnknownTopic):
        manifests.change_spec("default/b", before, {"schema": schema_fields(new)})
