"""A Docker engine for builds: the one that runs, or one of our own that is started for the time of the tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from e2e.cluster.binaries import CACHE
from e2e.cluster.daemons import Daemons, NotReady, wait_until

# On a busy machine containerd often needs longer than the 15 s that dockerd gives it.
TRIES = 3

# What the engine of our own keeps of builds for the next ones.
ARCHIVES_KEPT = "3gb"

MAVEN_SETTINGS = Path.home() / ".m2" / "settings.xml"
PIP_KEYS = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout")


class NoEngine(Exception):
    """There is no Docker to build with; the message says what to install."""


class Engine:
    """Builds Dockerfiles. Entering it raises NoEngine when there is none and none can be started."""

    def __init__(self) -> None:
        self._client = _client()
        self._host: str | None = None
        self._folder: Path | None = None
        self._daemons: Daemons | None = None

    def __enter__(self) -> Self:
        if self._answers():
            return self
        if os.geteuid() != 0 or shutil.which("dockerd") is None:
            raise NoEngine("no Docker engine answers: start it, or as root: make image-packages")
        for _ in range(TRIES - 1):
            with contextlib.suppress(NoEngine):
                return self._start()
        return self._start()

    def _start(self) -> Self:
        self._folder = folder = Path(tempfile.mkdtemp(prefix="smq-docker-"))
        self._host = f"unix://{folder}/docker.sock"
        self._daemons = Daemons(folder, attached=False)  # killed, it would leave its containerd behind
        # It makes no network and no rule of a firewall: builds use the machine's own.
        quiet = ("--bridge=none", "--iptables=false", "--ip-masq=false")
        places = (
            f"--data-root={CACHE / 'docker'}",
            f"--exec-root={folder / 'exec'}",
            f"--pidfile={folder / 'pidfile'}",
        )
        self._daemons.start("dockerd", ["dockerd", f"--host={self._host}", *places, *quiet])
        try:
            wait_until(self._answers, 300, "the Docker engine answers")
        except NotReady as error:
            said = self._daemons.log_tails("dockerd")
            self.__exit__()
            raise NoEngine(f"{error}\n{said}") from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._daemons is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._run("image", "prune", "--force")
                self._run("builder", "prune", "--force", f"--keep-storage={ARCHIVES_KEPT}")
            self._daemons.stop("dockerd", signal.SIGTERM, 30)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def build(self, dockerfile: Path, tag: str, arguments: Mapping[str, str], *, timeout: float = 900) -> None:
        """With this machine's settings of pip and Maven as secrets. Raises RuntimeError with the end of the output."""
        with tempfile.TemporaryDirectory() as folder:
            given = [f"--build-arg={name}={value}" for name, value in arguments.items()]
            given += [f"--secret=id={name},src={path}" for name, path in _secrets(Path(folder)).items()]
            command = (
                "build",
                "--network=host",
                f"--file={dockerfile}",
                f"--tag={tag}",
                *given,
                str(dockerfile.parent),
            )
            done = self._run(*command, timeout=timeout)
        if done.returncode:
            raise RuntimeError(f"{dockerfile.name} cannot be built:\n" + (done.stdout + done.stderr)[-3000:])

    def load(self, archive: Path) -> None:
        self.command("load", "--quiet", f"--input={archive}")

    def save(self, tag: str, archive: Path) -> None:
        """As docker-archive."""
        self.command("save", f"--output={archive}", tag)

    def command(self, *arguments: str) -> str:
        """What the client prints. Raises RuntimeError with what it said."""
        done = self._run(*arguments)
        if done.returncode:
            raise RuntimeError(f"docker {arguments[0]}: {done.stderr.strip()}")
        return done.stdout

    def _answers(self) -> bool:
        return self._run("info", "--format={{.ServerVersion}}").returncode == 0

    def _run(self, *arguments: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        host = ["--host", self._host] if self._host else []
        environment = os.environ | {"DOCKER_BUILDKIT": "1", "BUILDKIT_PROGRESS": "plain"}
        command = [self._client, *host, *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=timeout)


def _client() -> str:
    """The first client that can build with secrets: a newer one needs its plugin buildx for that."""
    environment = os.environ | {"DOCKER_BUILDKIT": "1"}
    for found in dict.fromkeys(filter(None, (shutil.which("docker"), shutil.which("docker", path="/usr/bin")))):
        shown = subprocess.run([found, "build", "--help"], capture_output=True, text=True, env=environment)
        if "--secret" in shown.stdout:
            return found
    raise NoEngine("no Docker client with BuildKit: make image-packages as root, or install its plugin docker-buildx")


def _secrets(folder: Path) -> dict[str, Path]:
    """What this machine's pip and Maven are configured with, as files for a build."""
    listed = subprocess.run(["python3", "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    settings = {}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        settings[name.rpartition(".")[2]] = value.strip("'\"")
    lines = [f"{key} = {settings[key]}" for key in PIP_KEYS if settings.get(key)]
    (folder / "pip.conf").write_text("\n".join(["[global]", *lines, ""]))
    found = {"pip.conf": folder / "pip.conf"}
    if Path(settings.get("cert", "")).is_file():
        found["ca"] = Path(settings["cert"])
    if MAVEN_SETTINGS.is_file():
        found["maven.xml"] = MAVEN_SETTINGS
    return found
