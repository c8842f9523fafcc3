"""Topics, segments, brokers and groups: the output of the lists, the effects of commands, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.processes.cli import CommandResult, smq
from support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def test_a_manifest_is_created_then_unchanged_then_configured(leader: str, tmp_path: Path) -> None:
    file = tmp_path / "many.yaml"
    one = "apiVersion: seaweedmq.io/v1alpha1\nkind: Topic\nmetadata: {name: %s}\nspec: {partitions: 16, replicas: %d}\n"
    file.write_text(one % ("m1", 2) + "---\n" + one % ("m2", 2))

    assert smq("apply", "-f", str(file), leader=leader).lines == ["topic m1 created", "topic m2 created"]
    assert smq("apply", "-f", str(file), leader=leader).lines == ["topic m1 unchanged", "topic m2 unchanged"]
    file.write_text(one % ("m1", 3))
    planned = smq("apply", "-f", str(file), "--dry-run", leader=leader)
    assert planned.lines == ["topic m1 configured (dry run)", "  replicas: 2 → 3"], planned
    assert smq("apply", "-f", str(file), leader=leader).lines == ["topic m1 configured", "  replicas: 2 → 3"]


def test_a_manifest_with_mistakes_is_refused_with_the_fields(leader: str) -> None:
    manifest = "apiVersion: seaweedmq.io/v1alpha1\nkind: Topic\nmetadata: {name: bad}\nspec: {partitions: -1}\n"

    ran = smq("apply", "-f", "-", leader=leader, stdin=manifest)

    assert ran.code == 1 and ran.out == ""
    assert "spec.partitions" in ran.err and "Traceback" not in ran.err


def test_the_list_of_topics(leader: str, topic: str) -> None:
    ran = smq("topic", "list", leader=leader)

    assert ran.lines[0].split() == ["NAME", "PARTITIONS", "SEGMENTS", "RATE", "READY"]
    row = dict(zip(ran.column("NAME"), zip(ran.column("PARTITIONS"), ran.column("SEGMENTS"), strict=True), strict=True))
    assert row[topic] == ("16", "1")
    as_json = json.loads(smq("topic", "list", "-o", "json", leader=leader).out)
    assert f"default/{topic}" in [t["name"] for t in as_json]


def test_the_number_of_messages_is_shown(leader: str, topic: str) -> None:
    assert smq("publish", topic, leader=leader, stdin="one\ntwo\nthree").code == 0
    assert smq("segment", "roll", f"{topic}-0-16", leader=leader).code == 0
    assert smq("publish", topic, leader=leader, stdin="four").code == 0

    def described() -> dict[str, object]:
        found: dict[str, object] = json.loads(smq("topic", "describe", topic, "--json", leader=leader).out)["topic"]
        return found

    eventually(lambda: described()["messages"] == 4, what="the brokers' reports")
    assert described()["ends"] == {f"{topic}-0-16-1": 1}
    assert "Messages:    4\n" in smq("topic", "describe", topic, leader=leader).out
    wide = smq("topic", "list", "-o", "wide", leader=leader)
    assert dict(zip(wide.column("NAME"), wide.column("MESSAGES"), strict=True))[topic] == "4"
    assert smq("segment", "list", topic, "--all", leader=leader).column("OFFSETS") == ["0-3", "0-1"]


def test_a_description_is_no_manifest_and_the_error_names_the_command_for_one(leader: str, topic: str) -> None:
    for command in (["topic", "describe", topic], ["topic", "list"]):
        shown = smq(*command, "-o", "yaml", leader=leader).out
        refused = smq("apply", "-f", "-", leader=leader, stdin=shown)
        assert (refused.code, refused.out) == (1, "") and "`smq topic export" in refused.err, refused


def test_describe_shows_columns_segments_and_decisions(leader: str, typed_topic: str) -> None:
    eventually(lambda: typed_topic in smq("segment", "list", typed_topic, leader=leader).out, what="segments")

    out = smq("topic", "describe", typed_topic, leader=leader).out

    for words in ("Partitions:  16", "Key:         name", "size   int32", f"{typed_topic}-0-16-0", "the topic is new"):
        assert words in out
    shown = {line.split()[0]: line.split()[1:] for line in out.splitlines() if "." in line and len(line.split()) < 4}
    assert shown["retention.age"] == ["7d", "default"] and shown["segments.max"] == ["16", "default"]


def test_the_story_of_a_topic_shows_what_the_leader_did_and_what_came_of_it(leader: str, topic: str) -> None:
    old, new = f"{topic}-0-16-0", f"{topic}-0-16-1"
    assert smq("segment", "roll", f"{topic}-0-16", leader=leader).code == 0

    def story() -> list[dict[str, str]]:
        found: list[dict[str, str]] = json.loads(
            smq("topic", "describe", topic, "--story", "--json", leader=leader).out
        )
        return found

    eventually(lambda: any(it["kind"] == "IndexAppended" and old in it["detail"] for it in story()), what="the roll")
    shown = [(it["kind"], it["segment"]) for it in story()]
    order = [
        ("OpenReplica", old),
        ("ReplicaOpened", old),
        ("ChangeRequested", ""),
        ("OpenReplica", new),
        ("ReplicaOpened", new),
        ("RequestSeal", old),
        ("Sealed", old),
        ("IndexAppended", ""),
    ]
    assert [shown.index(it) for it in order] == sorted(shown.index(it) for it in order), shown
    table = smq("topic", "describe", topic, "--story", leader=leader)
    assert table.lines[0].split() == ["TIME", "TIMES", "EVENT", "SEGMENT", "DETAIL"]
    assert f"{old} sealing (Manual), then {new}" in table.out


def test_settings_are_changed_and_exported_and_a_loss_needs_yes(leader: str, topic: str, tmp_path: Path) -> None:
    eventually(lambda: topic in smq("segment", "list", topic, leader=leader).out, what="segments")
    file = tmp_path / "exported.yaml"
    file.write_text(smq("topic", "export", topic, leader=leader).out)
    assert smq("apply", "-f", str(file), leader=leader).lines == [f"topic {topic} unchanged"]
    assert smq("diff", "-f", str(file), leader=leader) == CommandResult(0, "", "")

    raised = smq("topic", "alter", topic, "--retention", "30d", "--segments-max", "8", leader=leader)
    assert raised.lines == [f"topic {topic} configured", "  segments.max: 16 → 8", "  retention.age: 7d → 30d"], raised
    differs = smq("diff", "-f", str(file), leader=leader)
    assert differs.code == 1 and "-    age: 30d\n+    age: 7d\n" in differs.out, differs

    for command in (["topic", "alter", topic, "--retention", "7d"], ["apply", "-f", str(file)]):
        refused = smq(*command, leader=leader)
        assert (refused.code, refused.out) == (1, ""), refused
        assert "retention.age: 30d → 7d (default): messages older than 7d are removed" in refused.err
        assert "there is no terminal for the question; add --yes" in refused.err
    assert "30d" in smq("topic", "export", topic, leader=leader).out, "nothing was changed"
    assert smq("topic", "alter", topic, "--retention", "7d", "--yes", leader=leader).code == 0

    wrong = smq("topic", "alter", topic, "--retention", "3x", leader=leader)
    assert (wrong.code, wrong.out) == (1, "") and "spec.retention.age: '3x' has the unknown unit" in wrong.err
    file.write_text("kind: [")
    assert smq("diff", "-f", str(file), leader=leader).code == 2


def test_create_says_how_long_messages_are_kept(leader: str) -> None:
    default = smq("topic", "create", "kept-by-default", leader=leader)
    assert default.out == "topic kept-by-default created\n" and "messages are kept for 7d (the default" in default.err
    chosen = smq("topic", "create", "kept-as-chosen", "--retention", "unlimited", leader=leader)
    assert chosen.code == 0 and "messages are kept without a limit of age\n" in chosen.err


def test_a_segment_is_split_merged_rolled_and_moved_by_its_short_name(leader: str, topic: str) -> None:
    split = smq("segment", "split", f"{topic}-0-16", "--at", "4", leader=leader)
    assert (split.code, split.out) == (0, f"{topic}-0-16-0 sealed; {topic}-0-4-1, {topic}-4-16-2 open\n"), split
    merged = smq("segment", "merge", f"{topic}-0-4", f"{topic}-4-16-2", leader=leader)
    assert merged.out == f"{topic}-0-4-1, {topic}-4-16-2 sealed; {topic}-0-16-3 open\n", merged
    assert smq("segment", "roll", f"{topic}-0-16", leader=leader).out.endswith(f"{topic}-0-16-4 open\n")
    before = smq("segment", "list", topic, leader=leader).column("BROKERS")
    assert smq("segment", "move", f"{topic}-0-16", leader=leader).out.endswith(f"{topic}-0-16-5 open\n")
    assert smq("segment", "list", topic, leader=leader).column("BROKERS")[0].split(",")[0] not in before[0]

    dag = smq("segment", "list", topic, "--all", leader=leader)

    assert dag.column("PHASE") == ["sealed"] * 5 + ["open"]
    assert dag.column("FROM") == ["–", "#0", "#0", "#1 #2", "#3", "#4"]
    assert dag.column("RANGE") == ["0-16", "0-4", "4-16", "0-16", "0-16", "0-16"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["split", "{topic}-0-16", "--at", "16"], 1, "between 1 and 15"),
        (["split", "{topic}-0-16", "--at", "-3"], 1, "the number of a partition"),
        (["split", "{topic}-0-8"], 1, "no open segment {topic}-0-8"),
        (["merge", "{topic}-0-16"], 2, "two or more"),
        (["list", "no-such-topic"], 1, "no topic default/no-such-topic"),
        (["list"], 2, "TOPIC"),
    ],
)
def test_what_cannot_be_done_is_refused(leader: str, topic: str, arguments: list[str], code: int, words: str) -> None:
    ran = smq("segment", *(a.format(topic=topic) for a in arguments), leader=leader)

    assert ran.code == code and words.format(topic=topic) in ran.err, ran
    assert "Traceback" not in ran.err


def test_a_topic_is_paused_and_resumed(leader: str, topic: str) -> None:
    def ready() -> str:
        lines = smq("topic", "list", leader=leader).lines
        return next(line for line in lines if line.split()[0] == topic)

    assert smq("topic", "pause-scaling", topic, leader=leader).code == 0
    assert ready().endswith("yes, autoscaling paused")
    described = smq("topic", "describe", topic, leader=leader).out
    assert "Autoscaling: paused" in described and f"run `smq topic resume-scaling {topic}`" in described
    assert "autoscaling is paused" in smq("top", leader=leader).out, "the decision"

    resumed = smq("topic", "resume-scaling", topic, leader=leader)
    assert (resumed.code, resumed.out) == (0, f"topic {topic}: autoscaling is active\n")
    assert ready().endswith(" yes")
    assert smq("topic", "pause-scaling", "no-such-topic", leader=leader).code == 1


def test_a_deleted_topic_is_gone_and_deleting_needs_confirmation(leader: str, topic: str) -> None:
    unconfirmed = smq("topic", "delete", topic, leader=leader)
    assert unconfirmed.code == 1 and "--yes" in unconfirmed.err
    assert smq("topic", "delete", topic, "--yes", leader=leader).out == f"topic {topic} deleted\n"

    assert topic not in smq("topic", "list", leader=leader).column("NAME")
    assert smq("topic", "describe", topic, leader=leader).code == 1


def test_top_without_a_terminal_draws_one_picture(leader: str, topic: str) -> None:
    ran = smq("top", leader=leader)

    assert ran.code == 0
    assert "DECISION" in ran.out and "broker-1" in ran.out and f"{topic}-0-16-0" in ran.out


def test_a_broker_that_is_not_there_cannot_be_drained(leader: str) -> None:
    ran = smq("broker", "drain", "nobody", leader=leader)

    assert ran.code == 1 and "nobody" in ran.err and "Traceback" not in ran.err


def test_columns_are_changed_after_a_preview(leader: str, typed_topic: str) -> None:
    alter = ("topic", "alter", typed_topic)
    eventually(lambda: typed_topic in smq("segment", "list", typed_topic, leader=leader).out, what="segments")

    shown = smq(*alter, "--add-column", "gate:uint8", "--widen-column", "size:int64", "--dry-run", leader=leader)
    assert shown.lines == [
        f"topic {typed_topic}, schema version 1:",
        "  column 'size' is int64, was int32",
        "  column 'gate' (uint8, nullable) is new",
    ], shown
    refused = smq(*alter, "--add-column", "gate:uint8", leader=leader)
    assert refused.code == 1 and "there is no terminal for the question; add --yes" in refused.err
    assert "schema version 0" in smq("topic", "describe", typed_topic, leader=leader).out

    done = smq(*alter, "--add-column", "gate:uint8", "--widen-column", "size:int64", "--yes", leader=leader)
    assert (done.code, done.lines[-1]) == (0, f"topic {typed_topic} has schema version 1 now"), done
    assert done.lines[0] == f"topic {typed_topic} configured"
    out = smq("topic", "describe", typed_topic, leader=leader).out
    assert "Columns (schema version 1)" in out and "gate   uint8" in out
    (listed,) = [
        t for t in json.loads(smq("topic", "list", "-o", "json", leader=leader).out) if t["name"].endswith(typed_topic)
    ]
    assert (listed["schema_version"], listed["schema"][1]) == (1, ["size", "int64", False])

    dropped = json.loads(smq(*alter, "--drop-column", "gate", "--yes", "-o", "json", leader=leader).out)
    assert (dropped["result"], dropped["schema_version"]) == ("configured", 2)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--widen-column", "size:int16"], "'size' cannot change from int32 to int16"),
        (["--drop-column", "size"], "'size' is not nullable: make it nullable first"),
        (["--drop-column", "name"], "'name' is the key: it cannot be dropped"),
        (["--add-column", "more:complex64"], "there is no type 'complex64'"),
        (["--add-column", "more"], "--add-column needs NAME:TYPE, such as gate:uint8, not 'more'"),
        (["--drop-column", "other"], "there is no column 'other'. The columns are name, size"),
        ([], "nothing to change"),
    ],
)
def test_a_change_of_columns_is_refused_by_name(leader: str, typed_topic: str, options: list[str], why: str) -> None:
    eventually(lambda: typed_topic in smq("segment", "list", typed_topic, leader=leader).out, what="segments")
    ran = smq("topic", "alter", typed_topic, *options, "--yes", leader=leader)
    assert (ran.code, ran.out) == (1, "") and why in ran.err and "Traceback" not in ran.err, ran


def test_old_segments_are_trimmed_with_consent(leader: str, topic: str) -> None:
    assert smq("publish", topic, leader=leader, stdin="one\ntwo\nthree").code == 0
    read = smq("consume", topic, "--group", "g", "--from", "earliest", "--max", "1", leader=leader)
    assert read.lines == ["one"]
    assert smq("topic", "trim", topic, "--before", "now", leader=leader).lines == [f"topic {topic}: nothing to remove"]
    assert smq("segment", "roll", f"{topic}-0-16", leader=leader).code == 0

    planned = smq("topic", "trim", topic, "--before", "now", "--dry-run", leader=leader)
    assert planned.out.startswith(f"topic {topic}: 3 messages (1 segment, "), planned
    assert "group g has not read 2 messages of it, and skips them" in planned.err
    assert f"{topic}-0-16-1 stays: open" in planned.err
    refused = smq("topic", "trim", topic, "--before", "now", leader=leader)
    assert refused.code == 1 and "add --yes" in refused.err, refused
    assert len(smq("segment", "list", topic, "--all", leader=leader).lines) == 3, "nothing was removed"

    def trimmed() -> bool:  # the filer's clock counts in seconds, so it may say that the seal is not older yet
        done = smq("topic", "trim", topic, "--before", "now", "--yes", leader=leader)
        assert done.code == 0, done
        return "3 messages (1 segment" in done.out

    eventually(trimmed, what="the trim")
    assert len(smq("segment", "list", topic, "--all", leader=leader).lines) == 2
    assert "trim" in smq("topic", "describe", topic, leader=leader).out
    future = smq("topic", "trim", topic, "--before", "2099-01-01", leader=leader)
    assert future.code == 1 and "a time that has passed" in future.err
