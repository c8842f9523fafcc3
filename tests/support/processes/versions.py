"""Source trees of two versions of the project, and which of them each process of a cluster runs."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

# The commit, tag or branch of the other version. If it is not set, the newest release tag before this commit.
VARIABLE = "SMQ_OTHER_VERSION"
REPOSITORY = Path(__file__).parents[3]
PACKAGES = ("core", "storage", "proto", "broker", "operator", "client")
LEADER = "leader"

RUN_VERSION = """#!/bin/sh
# Runs a command with the packages of the version that is chosen for this process now.
PYTHONPATH="$(cat "{folder}/${{SMQ_NAME:-{leader}}}")" || exit 64
export PYTHONPATH
exec "$@"
"""


@dataclass(frozen=True, slots=True)
class SourceTree:
    """``root`` has the folders of ``PACKAGES``."""

    root: Path

    @property
    def python_path(self) -> str:
        return os.pathsep.join(str(self.root / package) for package in PACKAGES)

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which a process imports the packages of this tree."""
        return os.environ | {"PYTHONPATH": self.python_path}

    def check(self) -> None:
        """Checks that its packages are imported, and not those that the virtual environment has."""
        code = "import smq, smq_broker, smq_core, smq_operator; print(smq.__file__, smq_broker.__file__)"
        done = subprocess.run(
            [sys.executable, "-c", code], env=self.environment, check=True, capture_output=True, text=True
        )
        assert all(path.startswith(f"{self.root}{os.sep}") for path in done.stdout.split()), done.stdout

    def protocol(self) -> int:
        """The version of the protocol of these packages."""
        code = "from smq_proto import wire; print(wire.PROTOCOL)"
        done = subprocess.run([sys.executable, "-c", code], env=self.environment, check=True, capture_output=True)
        return int(done.stdout)


THIS_VERSION = SourceTree(REPOSITORY)


def other_commit() -> str | None:
    """The commit to compare with; None if the variable is not set and there is no release tag."""
    if chosen := os.environ.get(VARIABLE):
        return chosen
    found = _git("describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", check=False)
    return found.stdout.decode().strip() or None


def extract_version(commit: str, folder: Path) -> SourceTree:
    """Writes the packages as they are at a commit into a folder."""
    archive = _git("archive", "--format=tar", commit, *PACKAGES).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return SourceTree(folder)


def _git(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(["git", "-C", str(REPOSITORY), *arguments], capture_output=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"git {' '.join(arguments)}: {done.stderr.decode().strip()}")
    return done


class ProcessVersions:
    """Chooses a version for the leader and for each broker by name; it applies when the process starts next.

    ``script`` wraps the commands of leader and brokers. A broker has its name in ``SMQ_NAME``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._chosen: dict[str, SourceTree] = {}
        folder.mkdir(parents=True)
        self.script = folder / "run-version"
        self.script.write_text(RUN_VERSION.format(folder=folder, leader=LEADER))
        self.script.chmod(0o755)

    def choose(self, process: str, version: SourceTree) -> None:
        self._chosen[process] = version
        (self._folder / process).write_text(version.python_path)

    def __getitem__(self, process: str) -> SourceTree:
        return self._chosen[process]


def running_version(pid: int) -> str:
    """The PYTHONPATH with which a process was started."""
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(v.decode().partition("=")[2] for v in variables if v.startswith(b"PYTHONPATH="))
