"""The commands of `smq` in docs/maintenance.md and docs/elasticity.md run as written, on their own topics."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import smq
from support.doc_blocks import console_blocks, renamed, run_commands
from support.processes.cli import DevProcess, environment
from support.processes.cli import smq as run_smq
from support.waiting import HANG_GUARD, eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def paused(leader: str, topic: str) -> bool:
    with smq.connect(leader, timeout=HANG_GUARD) as client:
        return client.admin().topic(topic).paused


def test_a_topic_is_paused_and_resumed(leader: str, topic: str, tmp_path: Path) -> None:
    pause, resume = (renamed(command, {"flights": topic}) for command, _ in console_blocks("docs/elasticity.md")[0])
    for command, expected in ((pause, True), (resume, False)):
        ((output, code),) = run_commands([command], tmp_path, environment(leader))
        assert code == 0, output
        eventually(lambda expected=expected: paused(leader, topic) is expected, what=command)


def pattern_of(line: str) -> str:
    """What a line of the page is with other names, other numbers, and one thing in place of several."""
    parts = re.split(r"([0-9a-f]+…|\d[\d,]*|flights|files|segments)", line)
    others = {"flights": "[a-z0-9]+", "files": "files?", "segments": "segments?"}
    return "".join(
        others.get(part, "[0-9a-f-]+" if part.endswith("…") else r"[\d,]+") if number % 2 else re.escape(part)
        for number, part in enumerate(parts)
    )


def test_the_files_of_a_topic_are_verified(dev: DevProcess, topic: str, tmp_path: Path) -> None:
    """The same problem as on the page: the file of a publish by reference is missing."""
    ((command, expected),) = [
        block[0] for block in console_blocks("docs/maintenance.md") if block[0][0].startswith("smq topic verify")
    ]
    found = re.search(r"SeaweedFS +(\S+) at (\S+)", dev.output)
    assert found, dev.output
    command = renamed(command, {"flights": topic, "s3://smq": found[1], "http://seaweedfs-s3:8333": found[2]})
    pq.write_table(pa.table({"value": [b"one", b"two"]}), tmp_path / "upload.parquet")
    published = run_smq("publish", topic, "--by-reference", str(tmp_path / "upload.parquet"), leader=dev.leader)
    assert published.code == 0, published
    with smq.connect(dev.leader, timeout=HANG_GUARD) as client:
        eventually(lambda: len(client.files(topic)) == 1, what="the upload is listed")
        files = client.files(topic)
    ((output, code),) = run_commands([command], tmp_path, environment())
    assert code == 0 and output.startswith("0 problems"), output
    (url,) = files.urls
    files.filesystem().delete_file(url.removeprefix("s3://"))
    ((output, code),) = run_commands([command], tmp_path, environment())
    assert code == 1, output
    for line in expected:
        assert re.search(f"^{pattern_of(line)}$", output, re.MULTILINE), (line, output)
