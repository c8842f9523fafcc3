"""The external tools of the measurements, which a cache folder keeps from run to run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.harness.child_process import ROOT

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seaweedmq-bench"
REQUIREMENTS = ROOT / "benchmarks" / "requirements.txt"


class ToolMissing(Exception):
    """A peer cannot be measured here; the message says why and what to install."""


def venv(requirements: Path = REQUIREMENTS) -> Path:
    """The folder ``bin`` of a virtual environment with this file; made when it is missing or out of date."""
    folder = CACHE / ("venv" if requirements == REQUIREMENTS else f"venv-{requirements.stem}")
    stamp = folder / "requirements.txt"
    wanted = requirements.read_text()
    if not stamp.exists() or stamp.read_text() != wanted:
        try:
            run([sys.executable, "-m", "venv", str(folder)])
            run([str(folder / "bin" / "pip"), "install", "-q", "--disable-pip-version-check", "-r", str(requirements)])
        except (OSError, subprocess.CalledProcessError) as error:
            raise ToolMissing(f"{requirements} could not be installed: {stderr_of(error)}") from None
        stamp.write_text(wanted)
    return folder / "bin"


def python() -> Path:
    """The interpreter with the peers' client libraries. Raises Missing."""
    return venv() / "python"


def jars(pom: Path, name: str) -> Path:
    """The folder with the jars of a ``pom.xml``, fetched once into the cache folder. Raises ToolMissing."""
    folder = CACHE / name
    if not (folder / "complete").exists():
        maven = program("mvn", f"it fetches the jars of {pom.name}: apt install maven")
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        try:
            run([*command, "-DincludeScope=runtime", f"-DoutputDirectory={folder}"])
        except (OSError, subprocess.SubprocessError) as error:
            raise ToolMissing(f"Maven could not fetch the jars of {pom}: {stderr_of(error)}") from None
        (folder / "complete").touch()
    return folder


def program(name: str, why: str) -> str:
    """A program of the PATH. Raises Missing."""
    found = shutil.which(name)
    if found is None:
        raise ToolMissing(f"`{name}` is not installed: {why}")
    return found


def run(argv: list[str], timeout: float = 900.0) -> str:
    """Runs to the end and returns what was printed. Raises CalledProcessError."""
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)
    return done.stdout


def stderr_of(error: Exception) -> str:
    """The last line of what a failed program said."""
    text = getattr(error, "stderr", "") or str(error)
    return str(text).strip().splitlines()[-1][:300] if str(text).strip() else repr(error)
