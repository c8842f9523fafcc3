"""The blocks of the tutorial and of how-to pages run as written, on one `smq dev`; each page has its own topics."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import smq
from support.doc_blocks import REPOSITORY, Commands, check_outputs, console_blocks, fenced, paste, renamed
from support.processes.cli import environment
from support.processes.cli import smq as run_smq
from support.waiting import HANG_GUARD, eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow]

MESSAGES = pa.table({"key": [b"N1", b"N2"], "value": [b"one", b"two"]})


class EnoughPrinted(Exception):
    """The block reads for ever, as a consumer does, and has printed what the test waits for."""


def run_python(code: str, given: dict[str, Any], prints: int = 0) -> list[str]:
    """Runs a block with these names until it ends, or until it has printed so often. Returns the lines."""
    printed: list[str] = []

    def record(*values: object) -> None:
        printed.append(" ".join(map(str, values)))
        if len(printed) == prints:
            raise EnoughPrinted

    with contextlib.suppress(EnoughPrinted):
        exec(compile(code, "block", "exec"), given | {"print": record, "smq": smq, "re": re})
    assert len(printed) == prints, printed
    return printed


def run_console(block: Commands, folder: Path, leader: str, names: dict[str, str]) -> None:
    """Runs the commands of a block, with other names of topics, and compares what they print."""
    block = [(renamed(c, names), [renamed(line, names) for line in lines]) for c, lines in block]
    check_outputs(block, paste([command for command, _ in block], folder, environment(leader)))


@pytest.fixture
def client(leader: str) -> Iterator[smq.Client]:
    with smq.connect(leader, timeout=HANG_GUARD) as made:
        yield made


def create(leader: str, topic: str, *options: str) -> None:
    ran = run_smq("topic", "create", topic, *options, leader=leader)
    assert ran.code == 0, ran


def test_the_tutorial(leader: str, tmp_path: Path) -> None:
    names = {"orders": "tutorial"}
    first, *blocks, files, stop = console_blocks("docs/tutorial.md")
    assert [c.split()[0:2] for c, _ in [*first, *stop]] == [
        ["python3", "-m"],
        ["pip", "install"],
        ["smq", "dev"],
        ["smq", "dev"],
    ]
    for block in blocks:
        run_console(block, tmp_path, leader, names)
    (code,) = fenced("docs/tutorial.md", "python")
    printed = run_python(renamed(code.replace("localhost:7070", leader), names), {}, prints=5)
    assert printed[0].startswith("Receipt(segment='tutorial-")
    assert sorted(printed[1:]) == ["1 Lima", "2 Oslo", "3 Lima", "4 Oslo"]
    run_console(files, tmp_path, leader, names)


def test_the_pages_about_consumers(client: smq.Client, leader: str, tmp_path: Path) -> None:
    names = {"events": "consumed", "orders": "consumed-orders", "payments": "consumed-payments"}
    create(leader, "consumed", "--partitions", "1024")
    run_smq("segment", "split", "consumed-0-1024", "--at", "512", leader=leader)
    for topic in names.values():
        if topic != "consumed":
            create(leader, topic, "--partitions", "4")
        with client.producer(topic) as producer:
            producer.write(MESSAGES).result()
    with client.consumer("consumed", group="report", start="earliest") as consumer:
        batch = consumer.poll(HANG_GUARD)
        assert batch is not None
        consumer.commit()
    starts, several = fenced("docs/consumers.md", "python")
    with smq.connect(leader, timeout=HANG_GUARD) as other:  # which closes the consumers, so that they leave the group
        run_python(renamed(starts, names), {"client": other, "batch": batch, "datetime": datetime, "UTC": UTC})
    printed = run_python(renamed(several, names), {"client": client}, prints=2)
    assert sorted(printed) == ["default/consumed-orders 2", "default/consumed-payments 2"]
    eventually(lambda: members(leader, "consumed", "report") == [], what="the members have left")
    (groups,) = console_blocks("docs/consumers.md")
    # Without a terminal for the question.
    run_console([(c + " --yes" * (" delete " in c), o) for c, o in groups], tmp_path, leader, names)


def members(leader: str, topic: str, group: str) -> list[Any]:
    (found,) = [
        it["group"]
        for it in json.loads(run_smq("group", "list", topic, "--json", leader=leader).out)
        if it["group"]["name"] == group
    ]
    listed: list[Any] = found["members"]
    return listed


def test_the_page_about_schemas(leader: str, tmp_path: Path) -> None:
    manifest = (REPOSITORY / "examples" / "topics" / "flights.yaml").read_text()
    applied = run_smq("apply", "-f", "-", leader=leader, stdin=manifest.replace("name: flights", "name: altered"))
    assert applied.code == 0, applied
    (block,) = console_blocks("docs/schemas.md")
    run_console(block, tmp_path, leader, {"flights": "altered"})


def test_the_message_of_the_page_about_json_lines(leader: str, topic: str) -> None:
    (message,) = fenced("docs/json-lines.md", "json")
    assert run_smq("publish", topic, "--input", "json", leader=leader, stdin=message).code == 0
    ran = run_smq("consume", topic, "--from", "earliest", "--max", "1", "--format", "json", "--meta", leader=leader)
    found, written = json.loads(ran.out), json.loads(message)
    assert {name: found[name] for name in ("key", "value")} == {name: written[name] for name in ("key", "value")}
    assert {it["key"]: it["value"] for it in found["headers"]} == written["headers"]
    assert datetime.fromisoformat(found["timestamp"]) == datetime.fromisoformat(written["timestamp"])


@pytest.fixture
def producers(client: smq.Client, leader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the blocks of the pages about producers and large data use: names, files in the folder, and two topics."""
    monkeypatch.chdir(tmp_path)
    for topic, *columns in (["produced"], ["produced-images"], ["produced-rows", "--column", "carrier:string"]):
        if run_smq("topic", "describe", topic, leader=leader).code != 0:
            create(leader, topic, "--partitions", "8", *columns)
    for file in ("flights-01.parquet", "flights-02.parquet", "a.parquet", "b.parquet"):
        pq.write_table(MESSAGES, file)
    rows = pl.DataFrame({"carrier": ["UA", "AA"]})
    rows.write_csv("flights.csv")
    rows.write_parquet("flights.parquet")
    return {
        "client": client,
        "producer": client.producer("produced"),
        "table": MESSAGES,
        "tables": [MESSAGES, MESSAGES],
        "image": bytes(2 << 20),
        "pandas": pd,
        "polars": pl,
        "Path": Path,
        "leader": leader,
    }


PRODUCER_BLOCKS = [block for page in ("producers", "large-data") for block in fenced(f"docs/{page}.md", "python")]
PRINTS = {"for batch in consumer": 2, 'with client.consumer("images"': 1, "delivery = producer.publish_files": 2}


@pytest.mark.parametrize("number", range(len(PRODUCER_BLOCKS)))
def test_the_pages_about_producers_and_large_data(producers: dict[str, Any], number: int) -> None:
    code = renamed(PRODUCER_BLOCKS[number], {"events": "produced", "images": "produced-images"})
    code = code.replace('f"events-', 'f"produced-').replace("events-*.parquet", "produced-*.parquet")
    prints = next((n for start, n in PRINTS.items() if PRODUCER_BLOCKS[number].startswith(start)), 0)
    client: smq.Client = producers["client"]
    producers["producer"].write(MESSAGES).result()
    if "produced-images" in code:
        with client.producer("produced-images", max_inline_bytes=1 << 20) as sender:
            sender.send(producers["image"]).result()
    if "pandas" in code:
        producers["producer"] = client.producer("produced-rows")
    with client.consumer("produced", start="earliest") as consumer:
        printed = run_python(code, producers | {"consumer": consumer}, prints)
    if "lazy" in code:
        assert printed == [f"{2 << 20} {2 << 20}"]
    producers["producer"].flush()
