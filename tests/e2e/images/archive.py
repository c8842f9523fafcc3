"""What the images have in common: how an archive is built, and of which state of its inputs it is."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from e2e.cluster.base_image import NAME as BASE
from e2e.cluster.base_image import python_base

from .engine import Engine

ROOT = Path(__file__).parents[3]
SOURCES = ("core", "storage", "proto", "broker", "operator", "client")
# Behind the state of an archive that no engine has built.
WITHOUT_DOCKER = " without Docker"


def build(engine: Engine, dockerfile: Path, name: str, archive: Path, *, timeout: float = 900) -> None:
    """The engine has the base image already. While it is replaced, the archive is of no state."""
    engine.build(dockerfile, name, {"BASE": BASE}, timeout=timeout)
    new = archive.with_suffix(".new")
    engine.save(name, new)
    archive.with_suffix(".state").unlink(missing_ok=True)
    new.replace(archive)


def install(inside: Path, folder: Path, requirements: Path, *options: str) -> None:
    """The pinned requirements and this project, for Python 3.11. Wheels are made in ``folder``."""
    wheels = folder / "wheels"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(inside)]
    only = ["--python-version", "3.11", "--only-binary", ":all:", "--require-hashes", *options]
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels), str(ROOT)]
    for command in ([*pip, *only, "-r", str(requirements)], wheel):
        subprocess.run(command, check=True)
    subprocess.run([*pip, "--no-deps", *map(str, wheels.glob("*.whl"))], check=True)


def kept_state(archive: Path) -> str:
    """Of which state the archive is, or nothing."""
    state = archive.with_suffix(".state")
    return state.read_text() if archive.exists() and state.exists() else ""


def state_of(inputs: Iterable[Path]) -> str:
    """Of the base image and these files."""
    digest = hashlib.sha256(python_base().stat().st_mtime_ns.to_bytes(8, "big"))
    for path in inputs:
        digest.update(str(path.relative_to(ROOT)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def files_of(*folders: str) -> Iterator[Path]:
    """The sources in folders of the project."""
    for folder in folders:
        yield from sorted(p for p in (ROOT / folder).rglob("*") if p.is_file() and "__pycache__" not in p.parts)
