"""The drivers of examples/spark, run as their operators would start them, but on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyspark
import pytest
import yaml

import smq
from smq_storage.catalog import sealed_index
from smq_storage.catalog.topics import read_current_topic
from support.processes.local_cluster import LocalCluster
from support.spark.java import HOW_TO_GET_IT, find_java
from support.spark.topics import consumed, roll
from support.waiting import HANG_GUARD, eventually

pytestmark = [pytest.mark.spark]
ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples" / "spark").glob("*/*.yaml"))
IN_THE_IMAGE = "local:///app/jobs/"
ROWS = 100


def driver(resource: Mapping[str, Any]) -> tuple[Path, list[str]]:
    """The program of a SparkApplication in this repository, and its arguments."""
    spec = resource["spec"].get("template", resource["spec"])
    program = spec["mainApplicationFile"] if "mainApplicationFile" in spec else spec["pyFiles"]
    arguments = spec["arguments"] if "arguments" in spec else spec["driverArgs"]
    assert program.startswith(IN_THE_IMAGE)
    return ROOT / "spark" / "pyspark_smq" / "jobs" / program.removeprefix(IN_THE_IMAGE), arguments


def drivers(stem: str) -> list[Path]:
    """Of the examples whose names begin so, one for each program with its arguments: operators start some alike."""
    paths = [path for path in EXAMPLES if path.stem.startswith(stem)]
    return list({str(driver(yaml.safe_load(path.read_text()))): path for path in paths}.values())


COMPACTIONS, STREAMS = drivers("compact"), drivers("flights-hourly")


def submit(program: Path, given: Mapping[str, str], folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    spark = Path(pyspark.__file__).parent
    settings = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}
    settings["spark.sql.shuffle.partitions"] = "2"  # as few as there are cores
    command = [str(spark / "bin" / "spark-submit"), "--master", "local[2]", "--driver-memory", "1g"]
    command += [f"--conf={key}={value}" for key, value in settings.items()]
    command += [str(program), *(f"{key}={value}" for key, value in given.items()), *flags]
    environment = os.environ | {
        "SPARK_HOME": str(spark),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=HANG_GUARD)


@pytest.mark.slow
@pytest.mark.parametrize("path", COMPACTIONS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_driver_of_a_compaction_compacts(
    cluster: LocalCluster, client: smq.Client, topic: str, tmp_path: Path, path: Path
) -> None:
    assert find_java() is not None, HOW_TO_GET_IT
    cluster.create(topic, flush={"bytes": "64Ki", "interval": "1s"})
    with client.producer(topic) as producer:
        for number in range(ROWS):
            producer.send(str(number).encode() + b" " * 2000, key=str(number % 7).encode())
            if number % 25 == 24:
                producer.flush(HANG_GUARD)
    roll(client, topic)
    store, name = cluster.store.open(), f"default/{topic}"
    current = read_current_topic(store, name)
    assert current is not None
    eventually(lambda: any(e.file_list for e in sealed_index.read(store, name, current.uid)), what="a file list")
    before = consumed(client, topic, ROWS)
    program, arguments = driver(yaml.safe_load(path.read_text()))
    given = dict(argument.split("=", 1) for argument in arguments)
    given |= {"--topic": name, "--leader": cluster.address}
    done = submit(program, given, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "became 1" in done.stdout, done.stdout
    assert consumed(client, topic, ROWS).equals(before)


@pytest.mark.slow
@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.parent.name)
def test_the_driver_of_a_stream_reads_what_there_is(
    cluster: LocalCluster, topic: str, tmp_path: Path, path: Path
) -> None:
    for name, of in ((topic, "flights"), (f"{topic}-hourly", "flights-hourly")):
        spec = yaml.safe_load((ROOT / "examples" / "topics" / f"{of}.yaml").read_text())["spec"]
        cluster.create(name, **spec | {"partitions": 64, "segments": {"min": 1, "max": 2}})
    program, arguments = driver(yaml.safe_load(path.read_text()))
    given = dict(argument.split("=", 1) for argument in arguments)
    assert given.keys() == {"--topic", "--result", "--table", "--checkpoint", "--leader"}
    given |= {"--topic": topic, "--result": f"{topic}-hourly", "--leader": cluster.address}
    given |= {"--table": f"{tmp_path}/table", "--checkpoint": f"{tmp_path}/checkpoint"}
    done = submit(program, given, tmp_path, "--available-now")
    assert done.returncode == 0, done.stderr[-3000:]
    assert list((tmp_path / "checkpoint").glob("*/metadata")), "no query began"


def test_every_example_is_run() -> None:
    run = [driver(yaml.safe_load(path.read_text())) for path in (*COMPACTIONS, *STREAMS)]
    assert len(EXAMPLES) == 5 and all(driver(yaml.safe_load(path.read_text())) in run for path in EXAMPLES)
