"""The archives of the images that the chart needs, made once for each state of the sources."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from e2e.cluster.base_image import NAME as BASE
from e2e.cluster.base_image import python_base
from e2e.cluster.binaries import IMAGES
from e2e.cluster.image import DockerArchive
from smq_storage.process.seaweedfs import find_weed

from .engine import Engine, NoEngine

ROOT = Path(__file__).parents[3]
SOURCES = ("core", "storage", "proto", "broker", "operator", "client")
PARTS = ("broker", "operator")
SEAWEED = "localhost/seaweedfs:e2e"
WITHOUT_DOCKER = " without Docker"


def name(part: str) -> str:
    return f"localhost/seaweedmq-{part}:e2e"


def archives(running: Engine | None = None) -> list[Path]:
    """Broker, operator and SeaweedFS as docker-archive files: built from their Dockerfiles, or without Docker.

    With an engine that runs already, always by their Dockerfiles.
    """
    made = {part: IMAGES / f"product-{part}.tar" for part in PARTS}
    states = {part: _state(part) for part in PARTS}
    also = WITHOUT_DOCKER if running is None else ""
    stale = [part for part, archive in made.items() if _kept(archive) not in (states[part], states[part] + also)]
    if stale:
        IMAGES.mkdir(parents=True, exist_ok=True)
        try:
            with contextlib.nullcontext(running) if running is not None else Engine() as engine:
                engine.load(python_base())
                for part in stale:
                    _build(engine, part, made[part])
                    made[part].with_suffix(".state").write_text(states[part])
        except NoEngine as missing:
            print(f"{missing}; building images without it", file=sys.stderr)
            for part in stale:
                without_docker(part, made[part])
                made[part].with_suffix(".state").write_text(states[part] + WITHOUT_DOCKER)
    return [*made.values(), seaweed()]


def seaweed() -> Path:
    """SeaweedFS as its public image has it: `weed` on the PATH."""
    weed, archive = find_weed(), IMAGES / "product-seaweedfs.tar"
    state = str(weed.stat().st_mtime_ns)
    if _kept(archive) != state:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(weed, Path(folder) / "weed")
            image = DockerArchive(SEAWEED, python_base()).add(Path(folder) / "weed", "/usr/local/bin/weed")
            image.entrypoint("weed").write(archive)
        archive.with_suffix(".state").write_text(state)
    return archive


def without_docker(part: str, archive: Path) -> None:
    """What the Dockerfile makes, without Docker: for machines where no engine can run."""
    with tempfile.TemporaryDirectory() as folder:
        inside, wheels = Path(folder) / "lib", Path(folder) / "wheels"
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--target",
            str(inside),
        ]
        requirements = str(ROOT / "requirements" / f"{part}.txt")
        wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels), str(ROOT)]
        only = ["--python-version", "3.11", "--only-binary", ":all:", "--require-hashes"]
        for command in ([*pip, *only, "-r", requirements], wheel):
            subprocess.run(command, check=True)
        subprocess.run([*pip, "--no-deps", *map(str, wheels.glob("*.whl"))], check=True)
        image = DockerArchive(name(part), python_base()).add(inside, "/app/lib").user("65532:65532")
        image.env(PYTHONPATH="/app/lib", PYTHONUNBUFFERED="1", PYTHONDONTWRITEBYTECODE="1", HOME="/tmp", USER="smq")
        image.entrypoint("python3", "-m", f"smq_{part}.main").write(archive)


def _build(engine: Engine, part: str, archive: Path) -> None:
    engine.build(ROOT / f"Dockerfile.{part}", name(part), {"BASE": BASE})
    new = archive.with_suffix(".new")
    engine.save(name(part), new)
    archive.with_suffix(".state").unlink(missing_ok=True)
    new.replace(archive)


def _kept(archive: Path) -> str:
    """Of which state the archive is, or nothing."""
    state = archive.with_suffix(".state")
    return state.read_text() if archive.exists() and state.exists() else ""


def _state(part: str) -> str:
    digest = hashlib.sha256(python_base().stat().st_mtime_ns.to_bytes(8, "big"))
    for path in _inputs(part):
        digest.update(str(path.relative_to(ROOT)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _inputs(part: str) -> Iterator[Path]:
    yield from (ROOT / f"Dockerfile.{part}", ROOT / ".dockerignore", ROOT / "pyproject.toml")
    yield from sorted((ROOT / "requirements").glob("*.txt"))
    for folder in SOURCES:
        yield from sorted(p for p in (ROOT / folder).rglob("*") if p.is_file() and "__pycache__" not in p.parts)
