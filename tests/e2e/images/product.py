"""The archives of the images that the chart needs, made once for each state of the sources."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from e2e.cluster.base_image import python_base
from e2e.cluster.binaries import IMAGES
from e2e.cluster.image import DockerArchive
from smq_storage.process.seaweedfs import find_weed

from .archive import ROOT, SOURCES, WITHOUT_DOCKER, build, files_of, install, kept_state, state_of
from .engine import Engine, NoEngine

PARTS = ("broker", "operator")
SEAWEED = "localhost/seaweedfs:e2e"


def name(part: str) -> str:
    return f"localhost/seaweedmq-{part}:e2e"


def archives(running: Engine | None = None) -> list[Path]:
    """Broker, operator and SeaweedFS as docker-archive files: built from their Dockerfiles, or without Docker.

    With an engine that runs already, always by their Dockerfiles.
    """
    made = {part: IMAGES / f"product-{part}.tar" for part in PARTS}
    states = {part: state_of(_inputs(part)) for part in PARTS}
    also = WITHOUT_DOCKER if running is None else ""
    stale = [part for part, archive in made.items() if kept_state(archive) not in (states[part], states[part] + also)]
    if stale:
        IMAGES.mkdir(parents=True, exist_ok=True)
        try:
            with contextlib.nullcontext(running) if running is not None else Engine() as engine:
                engine.load(python_base())
                for part in stale:
                    build(engine, ROOT / f"Dockerfile.{part}", name(part), made[part])
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
    if kept_state(archive) != state:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(weed, Path(folder) / "weed")
            image = DockerArchive(SEAWEED, python_base()).add(Path(folder) / "weed", "/usr/local/bin/weed")
            image.entrypoint("weed").write(archive)
        archive.with_suffix(".state").write_text(state)
    return archive


def without_docker(part: str, archive: Path) -> None:
    """What the Dockerfile makes, without Docker: for machines where no engine can run."""
    with tempfile.TemporaryDirectory() as folder:
        inside = Path(folder) / "lib"
        install(inside, Path(folder), ROOT / "requirements" / f"{part}.txt")
        image = DockerArchive(name(part), python_base()).add(inside, "/app/lib").user("65532:65532")
        image.env(PYTHONPATH="/app/lib", PYTHONUNBUFFERED="1", PYTHONDONTWRITEBYTECODE="1", HOME="/tmp", USER="smq")
        image.entrypoint("python3", "-m", f"smq_{part}.main").write(archive)


def _inputs(part: str) -> Iterator[Path]:
    yield from (ROOT / f"Dockerfile.{part}", ROOT / ".dockerignore", ROOT / "pyproject.toml")
    yield from sorted((ROOT / "requirements").glob("*.txt"))
    yield from files_of(*SOURCES)
