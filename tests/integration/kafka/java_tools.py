"""Kafka's command-line tools, as its distribution has them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks.harness import tools
from benchmarks.peers.kafka_clients import HERE as PEERS
from support.waiting import HANG_GUARD

LAUNCHER = Path(__file__).parent / "java" / "Tools.java"


class JavaTools:
    """A JVM that runs one tool after the other. Use it in a ``with`` statement."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        logging = f"-Dlog4j2.configurationFile={PEERS / 'log4j2.properties'}"
        flags = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", logging]
        self._java = ["java", *flags, "-cp", f"{jars()}/*"]
        self._process = subprocess.Popen(
            [*self._java, str(LAUNCHER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> JavaTools:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, tool: str, *arguments: object) -> str:
        """What the tool prints. An exit code other than 0 fails the test."""
        assert self._process.stdin is not None and self._process.stdout is not None
        words = [tool, "--bootstrap-server", self._bootstrap, *map(str, arguments)]
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()
        printed = []
        for line in self._process.stdout:
            if line.startswith("\0"):
                text = "".join(printed)
                assert line.strip("\0\n") == "0", f"{' '.join(words)} ended with {line[1:]}{text}"
                return text
            printed.append(line)
        raise AssertionError(f"the JVM ended in {' '.join(words)}:\n{''.join(printed)}")

    def run_alone(self, tool: str, *arguments: object) -> str:
        """The same in another JVM, for tools that end their work when it ends."""
        command = [*self._java, tool, "--bootstrap-server", self._bootstrap, *map(str, arguments)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=HANG_GUARD)
        return done.stdout


def jars() -> Path:
    """The folder of Kafka's jars. Skips the test where they cannot be had."""
    if os.environ.get("CI"):
        pytest.skip("Kafka's tools are fetched from Maven Central, which the checks do without")
    missing = [name for name in ("java", "javac", "mvn") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed: apt install openjdk-17-jdk-headless maven")
    try:
        return tools.jars(PEERS / "pom.xml", "kafka-4.3.1")
    except tools.ToolMissing as error:
        pytest.skip(str(error))
