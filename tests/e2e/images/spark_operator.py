"""The archive of the image of Kubeflow's Spark operator: its program on the image of Spark, as its own image is."""

from __future__ import annotations

from pathlib import Path

from e2e.cluster.binaries import IMAGES, SPARK_OPERATOR
from e2e.cluster.image import DockerArchive

from . import spark

REPOSITORY = "seaweedmq-e2e/spark-operator"
NAME = f"localhost/{REPOSITORY}:{SPARK_OPERATOR.version}"


def archive() -> Path:
    """It submits with the Spark of the applications. Raises NotBuildable, RuntimeError and CalledProcessError."""
    base, program = spark.archive(), SPARK_OPERATOR.build()
    made = IMAGES / "spark-operator.tar"
    if not made.exists() or made.stat().st_mtime < max(base.stat().st_mtime, program.stat().st_mtime):
        image = DockerArchive(NAME, base).add(program, "/usr/bin/spark-operator")
        image.entrypoint("/usr/bin/spark-operator").write(made)
    return made
