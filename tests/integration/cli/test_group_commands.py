"""`smq group …` against a real leader: what an operator of the system does to a group."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.processes.cli import smq
from support.waiting import eventually

pytestmark = pytest.mark.integration


@pytest.mark.slow
def test_a_group_is_described_reset_exported_imported_and_deleted(leader: str, topic: str, tmp_path: Path) -> None:
    assert smq("publish", topic, leader=leader, stdin="one\ntwo\nthree\n").code == 0
    read = smq("consume", topic, "--group", "g", "--from", "earliest", "--max", "3", leader=leader)
    assert sorted(read.lines) == ["one", "three", "two"]
    segment = f"{topic}-0-16-0"

    def described() -> dict[str, Any]:
        found: dict[str, Any] = yaml.safe_load(smq("group", "describe", topic, "g", "-o", "yaml", leader=leader).out)
        return found["group"]

    at_end = {"segment": segment, "position": 3, "end": 3, "member": "", "waits_for_commit": False}
    eventually(lambda: described()["segments"] == [at_end], what="the brokers have reported how far the topic goes")
    (entry,) = json.loads(smq("group", "list", topic, "--json", leader=leader).out)
    assert entry["group"]["lag"] == 0 and entry["group"]["positions"] == {segment: 3}
    wide = smq("group", "list", topic, "-o", "wide", leader=leader)
    assert wide.lines[0].endswith("COMMITTED") and wide.lines[1].endswith("ago")

    exported = smq("group", "export", topic, "g", leader=leader)
    file = tmp_path / "g.json"
    file.write_text(exported.out)
    # A member that has left counts as one for a moment at most.
    done = eventually(lambda: (ran := smq("group", "reset", topic, "g", "--by", "-2", leader=leader)).code == 0 and ran)
    assert done.lines[1].split() == [segment, "3", "1"]
    shown = smq("group", "describe", topic, "g", leader=leader)
    assert "Lag:" in shown.out and [segment, "1", "3", "2", "–"] in [line.split() for line in shown.lines]
    dry = smq("group", "reset", topic, "g", "--to-time", "-1h", "--dry-run", leader=leader)
    assert dry.lines[1].split() == [segment, "1", "0"] and "nothing was changed" in dry.err
    assert smq("group", "import", topic, "other", "--from", str(file), leader=leader).code == 0
    both = json.loads(smq("group", "list", topic, "--json", leader=leader).out)
    assert {it["group"]["name"]: it["group"]["lag"] for it in both} == {"g": 2, "other": 0}

    refused = smq("group", "reset", topic, "g", "--to-position", f"{segment}:99", leader=leader)
    assert refused.code == 1 and "0 to 3 are possible" in refused.err
    assert "no group nobody; it has g, other" in smq("group", "describe", topic, "nobody", leader=leader).err
    assert smq("group", "delete", topic, "g", "--yes", leader=leader).code == 0
    assert "say where the group shall continue" in smq("group", "reset", topic, "other", leader=leader).err


def test_an_export_of_another_topic_is_refused(leader: str, topic: str) -> None:
    of_other = json.dumps({"topic": topic, "uid": "another", "group": "g", "positions": {}})
    ran = smq("group", "import", topic, "g", leader=leader, stdin=of_other)
    assert ran.code == 1 and "it is another topic, or was deleted and made anew" in ran.err
    ran = smq("group", "import", topic, "g", leader=leader, stdin='{"positions": {"a": -1}}')
    assert ran.code == 1 and "is not what `smq group export` prints" in ran.err
