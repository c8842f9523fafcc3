"""The demo's side of its stream on Spark, which runs as a separate process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import smq
from smq.cli.commands.spark import find_submit

ROOT = Path(__file__).parents[1]
END_TIMEOUT_SECONDS = 300.0


class DemoStream:
    """Counts flights per carrier from now on. Raises smq.SmqError if there is no Spark or no Java."""

    def __init__(self, leader: str, folder: Path) -> None:
        find_submit()
        folder.mkdir()
        self._folder = folder
        with (folder / "spark.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "examples.demo_spark", leader, str(folder)],
                cwd=ROOT,
                env=os.environ | {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demo
            )

    def finish(self) -> dict[str, int]:
        """The counts of everything that has been published. Raises smq.SmqError if the stream has failed."""
        (self._folder / "stop").touch()
        try:
            code = self._process.wait(END_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            raise smq.SmqError(f"Spark has not read everything within {END_TIMEOUT_SECONDS:.0f} s") from None
        if code:
            lines = (self._folder / "spark.log").read_text(errors="replace").splitlines()
            raise smq.SmqError("\n".join([f"the stream on Spark ended with exit code {code}:", *lines[-20:]]))
        found: dict[str, int] = json.loads((self._folder / "counts.json").read_text())
        return found

    def kill(self) -> None:
        """Ends it at once, if it still runs."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
