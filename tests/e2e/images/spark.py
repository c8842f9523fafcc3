"""The archive of the image of Spark's drivers and executors, made once for each state of the sources."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyspark

from e2e.cluster.base_image import java_base, python_base
from e2e.cluster.binaries import IMAGES
from e2e.cluster.image import DockerArchive
from tools.spark_jars import JarsMissing, fetch

from .archive import ROOT, SOURCES, WITHOUT_DOCKER, build, files_of, install, kept_state, state_of
from .engine import Engine, NoEngine

NAME = "localhost/seaweedmq-spark:e2e"
DOCKERFILE = ROOT / "Dockerfile.spark"
ENTRYPOINT = ROOT / "spark" / "docker" / "entrypoint.sh"
REQUIREMENTS = ROOT / "requirements" / "spark.txt"
# PySpark is built from its sources of 450 MB.
BUILD_SECONDS = 2400


class NotBuildable(Exception):
    """The image cannot be made on this machine; the message says what is missing."""


def archive(running: Engine | None = None) -> Path:
    """As docker-archive: built from Dockerfile.spark, or without Docker. With an engine that runs, always by Docker.

    Raises NotBuildable.
    """
    made, state = IMAGES / "spark.tar", state_of(_inputs())
    found = kept_state(made)
    if found == state or (running is None and found == state + WITHOUT_DOCKER):
        return made
    IMAGES.mkdir(parents=True, exist_ok=True)
    kept = made.with_suffix(".state")
    kept.unlink(missing_ok=True)
    if running is not None:
        _build(running, made)
    else:
        try:
            with Engine() as engine:
                _build(engine, made)
        except NoEngine as missing:
            print(f"{missing}; building the image of Spark without it", file=sys.stderr)
            without_docker(made)
            state += WITHOUT_DOCKER
    kept.write_text(state)
    return made


def without_docker(archive: Path) -> None:
    """What the Dockerfile makes, with the PySpark of this Python, because its package would have to be built."""
    pinned = dict(line.split()[0].split("==") for line in REQUIREMENTS.read_text().splitlines() if line[:1].isalpha())
    if pyspark.__version__ != pinned["pyspark"]:
        raise NotBuildable(f"the image has PySpark {pinned['pyspark']}, and this Python has {pyspark.__version__}")
    try:
        jars, base = fetch(), java_base()
    except (JarsMissing, RuntimeError) as missing:
        raise NotBuildable(str(missing)) from missing
    with tempfile.TemporaryDirectory() as folder:
        app = Path(folder) / "app"
        inside = app / "lib"
        inside.mkdir(parents=True)
        install(inside, Path(folder), _without_pyspark(Path(folder)), "--no-deps")
        shutil.copytree(Path(pyspark.__file__).parent, inside / "pyspark", ignore=shutil.ignore_patterns("*.zip"))
        for jar in jars.glob("*.jar"):
            shutil.copy(jar, inside / "pyspark" / "jars")
        shutil.copy(ENTRYPOINT, app / "entrypoint.sh")
        (app / "bin").mkdir()
        (app / "bin" / "python").symlink_to("/usr/bin/python3")
        (app / "spark").symlink_to("lib/pyspark")
        (app / "jobs").symlink_to("lib/pyspark_smq/jobs")
        image = DockerArchive(NAME, base).add(app, "/app").user("65532:65532").working_directory("/tmp")
        image.env(PATH="/app/bin:/usr/local/bin:/usr/bin:/bin", PYTHONPATH="/app/lib", HOME="/tmp", USER="smq")
        image.env(PYTHONUNBUFFERED="1", PYTHONDONTWRITEBYTECODE="1", SPARK_HOME="/app/spark")
        image.env(PYSPARK_PYTHON="/app/bin/python", PYSPARK_DRIVER_PYTHON="/app/bin/python")
        image.entrypoint("/app/entrypoint.sh").write(archive)


def _without_pyspark(folder: Path) -> Path:
    """A file with what the image pins, but for PySpark."""
    others = folder / "others.txt"
    others.write_text(re.sub(r"(?m)^pyspark==(?:.*\\\n)*.*\n", "", REQUIREMENTS.read_text()))
    return others


def _build(engine: Engine, made: Path) -> None:
    engine.load(python_base())
    build(engine, DOCKERFILE, NAME, made, timeout=BUILD_SECONDS)


def _inputs() -> Iterator[Path]:
    yield from (DOCKERFILE, ROOT / ".dockerignore", ROOT / "pyproject.toml", REQUIREMENTS)
    yield ROOT / "requirements" / "build.txt"
    yield from files_of(*SOURCES, "spark")
