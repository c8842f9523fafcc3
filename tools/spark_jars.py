"""The jars with which Spark reads s3a://: fetched once by Maven, and kept in a cache folder.

    python tools/spark_jars.py          fetches them if they are not there, and prints the folder

`make spark-jars` runs it. A change of spark/jars/pom.xml makes a new folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

POM = Path(__file__).resolve().parents[1] / "spark" / "jars" / "pom.xml"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seaweedmq-spark"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
HOW_TO_GET_THEM = "run `make spark-jars` once (about 30 MB, needs Maven)"


class JarsMissing(Exception):
    """The jars could not be fetched; the message says why."""


def folder() -> Path:
    """Where the jars are, or will be."""
    return CACHE / hashlib.sha256(POM.read_bytes()).hexdigest()[:16]


def find() -> list[Path] | None:
    """The jars, or None if they were not fetched."""
    return sorted(folder().glob("*.jar")) if folder().is_dir() else None


def fetch() -> Path:
    """Fetches the jars unless they are there. Raises JarsMissing."""
    target = folder()
    if target.is_dir():
        return target
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsMissing("`mvn` is not installed: run `make spark-packages` (Debian, root)")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(dir=target.parent))
    try:
        command = [maven, "-B", "-q", "-f", str(POM), COPY, "-DincludeScope=runtime", f"-DoutputDirectory={part}"]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise JarsMissing(f"Maven could not fetch the jars of {POM}:\n{(done.stdout + done.stderr)[-2000:]}")
        part.chmod(0o755)
        try:
            part.rename(target)
        except OSError:
            if not target.is_dir():  # another process was faster
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return target


if __name__ == "__main__":
    try:
        print(fetch())
    except JarsMissing as error:
        sys.exit(str(error))
