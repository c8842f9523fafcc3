"""The package sent with a program by ``--py-files``, to a Python that has only what it needs."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

import smq
from support.processes.cli import environment
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD

ROOT = Path(__file__).parents[2]
PACKAGES = ("core/smq_core", "storage/smq_storage", "proto/smq_proto", "client/smq", "spark/pyspark_smq")

PROGRAM = """
import sys
import pyspark_smq
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.dataSource.register(pyspark_smq.DefaultSource)
frame = spark.read.format("smq").options(topic=sys.argv[1], leader=sys.argv[2]).load()
print("found", pyspark_smq.__file__, [bytes(row.value) for row in frame.collect()])
"""

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def zip_packages(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for package in map(ROOT.__truediv__, PACKAGES):
            for file in package.rglob("*.py"):
                archive.write(file, file.relative_to(package.parent))


def python_without_the_package(path: Path) -> None:
    """Without the module ``site``, Python follows no link to a checkout, and still finds what is installed."""
    installed = Path(pa.__file__).parents[1]
    path.write_text(f'#!/bin/sh\nexport PYTHONPATH="$PYTHONPATH:{installed}"\nexec {sys.executable} -S "$@"\n')
    path.chmod(0o755)


def test_a_program_that_registers_the_source_reads(
    cluster: LocalCluster, client: smq.Client, topic: str, tmp_path: Path
) -> None:
    cluster.create(topic)
    with client.producer(topic) as producer:
        producer.send(b"x").result(HANG_GUARD)
    packages, python, program = tmp_path / "packages.zip", tmp_path / "python", tmp_path / "program.py"
    zip_packages(packages)
    python_without_the_package(python)
    program.write_text(PROGRAM)
    submit = [str(Path(sys.executable).with_name("spark-submit")), "--py-files", str(packages), str(program)]
    ran = subprocess.run(
        [*submit, topic, cluster.address],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment() | {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)},
    )
    assert ran.returncode == 0, ran.stderr[-5000:]
    assert "packages.zip/pyspark_smq/__init__.py [b'x']" in ran.stdout
