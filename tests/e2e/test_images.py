"""The Dockerfiles, built for real: what is in the images, who they run as, and that they need no writable root."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster.base_image import python_base
from e2e.images import spark
from e2e.images.engine import Engine, NoEngine
from e2e.images.product import PARTS, archives, name, without_docker

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800, func_only=True)]
LARGEST_MIB = {"broker": 450, "operator": 520}
LARGEST_SPARK_MB = 1300
SPARK_PROGRAM = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.range(100).mapInArrow(lambda batches: batches, "id long").selectExpr("sum(id) AS total").collect()
print(rows, spark._jvm.java.lang.Class.forName("org.apache.hadoop.fs.s3a.S3AFileSystem").getSimpleName())
"""


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    if os.geteuid() != 0:
        pytest.skip("the base image is made by root")
    try:
        with Engine() as engine:
            for archive in archives(engine):
                engine.load(archive)
            yield engine
    except NoEngine as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def spark_engine(engine: Engine) -> Engine:
    engine.load(spark.archive(engine))
    return engine


def run(engine: Engine, part: str, program: str, *arguments: str) -> str:
    return run_image(engine, name(part), program, *arguments)


def run_image(engine: Engine, image: str, program: str, *arguments: str) -> str:
    confined = ("--rm", "--network=none", "--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", f"--entrypoint={program}")
    return engine.command("run", *confined, "--env=SPARK_LOCAL_IP=127.0.0.1", image, *arguments)


@pytest.mark.parametrize("part", PARTS)
def test_an_image_is_small_and_not_roots(engine: Engine, part: str) -> None:
    found = json.loads(engine.command("image", "inspect", name(part)))[0]
    assert found["Config"]["User"] == "65532:65532"
    assert found["Config"]["Entrypoint"] == [f"/app/bin/smq-{part}"]
    assert found["Size"] < LARGEST_MIB[part] * 10**6, f"{found['Size'] / 10**6:.0f} MB"
    assert run(engine, part, "id").startswith("uid=65532 gid=65532")


@pytest.mark.parametrize("part", PARTS)
def test_its_program_starts_on_a_root_that_cannot_be_written(engine: Engine, part: str) -> None:
    assert f"usage: smq-{part}" in run(engine, part, f"/app/bin/smq-{part}", "--help")


def test_the_operators_image_has_the_command_line(engine: Engine) -> None:
    assert "Usage: smq" in run(engine, "operator", "smq", "--help")


@pytest.mark.parametrize("part", PARTS)
def test_nothing_of_the_build_stays(engine: Engine, part: str) -> None:
    look = "ls /app/bin; find / -xdev \\( -name pip.conf -o -path '/src*' -o -path '/wheels*' \\) 2>/dev/null; env"
    found = run(engine, part, "sh", "-c", look)
    assert "pip" not in found and "/src" not in found and "INDEX" not in found
    history = engine.command("history", "--no-trunc", "--format={{.CreatedBy}}", name(part))
    assert "index-url" not in history.lower() and "ca.crt" not in history


def test_the_same_images_can_be_made_without_docker(engine: Engine, tmp_path: Path) -> None:
    assert python_base().exists()
    without_docker("broker", tmp_path / "broker.tar")
    engine.load(tmp_path / "broker.tar")
    try:
        assert "usage: smq-broker" in run(engine, "broker", "python3", "-m", "smq_broker.main", "--help")
    finally:
        engine.load(archives()[0])


def test_the_image_of_spark_is_not_roots_and_keeps_nothing_of_its_build(spark_engine: Engine) -> None:
    found = json.loads(spark_engine.command("image", "inspect", spark.NAME))[0]
    assert found["Config"]["User"] == "65532:65532"
    assert found["Config"]["Entrypoint"] == ["/app/entrypoint.sh"]
    assert found["Size"] < LARGEST_SPARK_MB * 10**6, f"{found['Size'] / 10**6:.0f} MB"
    look = "id -un; ls /app/bin; find / -xdev -name pip.conf -o -xdev -path '/src*' -o -xdev -name 'smq-0*'; env"
    said = run_image(spark_engine, spark.NAME, "sh", "-c", f"({look}) 2>/dev/null")
    assert said.startswith("smq\n") and "pip" not in said.split()
    assert not [word for word in ("pip.conf", "/src", "smq-0", "index-url") if word in said]


def test_the_image_of_spark_runs_it_on_a_root_that_cannot_be_written(spark_engine: Engine) -> None:
    assert "[Row(total=4950)] S3AFileSystem" in run_image(spark_engine, spark.NAME, "python", "-c", SPARK_PROGRAM)
    for job in ("backfill", "compact", "flights_hourly", "verify"):
        assert "--topic" in run_image(spark_engine, spark.NAME, "python", f"/app/jobs/{job}.py", "--help")
