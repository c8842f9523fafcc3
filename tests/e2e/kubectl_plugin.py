"""`kubectl smq` as users run it: kubectl finds the plugin on the PATH, and the plugin finds kubectl there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster.binaries import BIN
from e2e.release import SPACE, Release


class KubectlPlugin:
    """``kubectl smq -n NAMESPACE``, by default in the Namespace of the release. It is given no address."""

    def __init__(self, release: Release, namespace: str = SPACE) -> None:
        places = [str(Path(sys.executable).parent), str(BIN), os.environ["PATH"]]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SMQ_")}
        self._environment = kept | {"PATH": ":".join(places), "KUBECONFIG": str(release.cluster.kubeconfig)}
        kubectl = shutil.which("kubectl", path=self._environment["PATH"])
        assert kubectl is not None
        self._command = [kubectl, "smq", "-n", namespace]

    def run(self, *arguments: str, stdin: str = "") -> str:
        """What it prints. Raises CalledProcessError, with what it said in ``stderr``."""
        done = subprocess.run(
            [*self._command, *arguments], input=stdin, capture_output=True, text=True, env=self._environment, check=True
        )
        return done.stdout

    @contextmanager
    def running(self, output: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """In a separate process group, as a shell makes one. It prints to ``output``, and ends with the block."""
        words = [*self._command, *arguments]
        with (
            output.open("w") as stdout,
            subprocess.Popen(words, stdout=stdout, env=self._environment, process_group=0) as process,
        ):
            try:
                yield process
            finally:
                process.terminate()
