"""Finds a Java that runs Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

OLDEST_JAVA = 17
HOW_TO_GET_IT = "Spark needs Java 17 or newer: run `make spark-packages` (Debian, root), or set JAVA_HOME"


@cache
def find_java() -> Path | None:
    """The ``java`` in JAVA_HOME or else on the PATH, as Spark's own scripts look for it; None if none fits."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if found is None:
        return None
    done = subprocess.run([found, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(\d+)', done.stderr)
    return Path(found) if version and int(version[1]) >= OLDEST_JAVA else None
