"""A Debian image with Python, made from Debian's packages: where no registry of images can be reached."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from .binaries import CACHE, IMAGES
from .image import DockerArchive

RELEASE = "bookworm"
NAME = f"localhost/python-base:{RELEASE}"


def python_base() -> Path:
    """The archive of the image; made once, in half a minute. Needs root. Raises RuntimeError with the log's name."""
    archive = IMAGES / "python-base.tar"
    if archive.exists():
        return archive
    if shutil.which("debootstrap") is None:
        raise RuntimeError("debootstrap is needed to make the base image: apt-get install debootstrap")
    IMAGES.mkdir(parents=True, exist_ok=True)
    root, log = CACHE / "rootfs", CACHE / "debootstrap.log"
    shutil.rmtree(root, ignore_errors=True)
    packages = "python3,python3-venv,ca-certificates"
    with log.open("wb") as out:
        command = ["debootstrap", "--variant=minbase", f"--include={packages}", RELEASE, str(root)]
        done = subprocess.run(command, stdout=out, stderr=out)
    if done.returncode:
        raise RuntimeError(f"debootstrap failed; see {log}")
    DockerArchive(NAME).root(root).entrypoint("python3").write(archive)
    shutil.rmtree(root, ignore_errors=True)
    return archive
