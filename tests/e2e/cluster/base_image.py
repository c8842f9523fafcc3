"""Debian images with Python and Java, made from Debian's packages: where no registry of images can be reached."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

from .binaries import CACHE, IMAGES
from .image import DockerArchive

RELEASE = "bookworm"
NAME = f"localhost/python-base:{RELEASE}"
JAVA_PACKAGES = "openjdk-17-jre-headless procps"
# As Dockerfile.spark does it. Hadoop does not start as a user without a name.
INSTALL = f"""
set -e
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -y -q --no-install-recommends {JAVA_PACKAGES}
echo smq:x:65532:65532::/tmp:/usr/sbin/nologin >> /etc/passwd
echo smq:x:65532: >> /etc/group
"""


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


def java_base() -> Path:
    """The same with Java, for images of Spark that no engine builds. Needs root. Raises RuntimeError."""
    archive = IMAGES / "java-base.tar"
    python = python_base()
    if archive.exists() and archive.stat().st_mtime > python.stat().st_mtime:
        return archive
    root, log = CACHE / "rootfs-java", CACHE / "java-base.log"
    shutil.rmtree(root, ignore_errors=True)
    with tarfile.open(python) as image:
        for member in image.getmembers():
            if member.name.endswith(".tar") and (layer := image.extractfile(member)):
                with tarfile.open(fileobj=layer) as files:
                    files.extractall(root, filter="fully_trusted")
    for name in ("proc", "dev", "run", "var/log", "var/lib/apt/lists/partial", "var/cache/apt/archives/partial"):
        (root / name).mkdir(parents=True, exist_ok=True)
    shutil.copy("/etc/resolv.conf", root / "etc" / "resolv.conf")
    # Java's package stores its certificates with Java, which needs /proc.
    apart = ["unshare", "--mount", "--pid", "--fork", f"--mount-proc={root / 'proc'}", "sh", "-ec"]
    with log.open("wb") as out:
        command = [*apart, 'mount --bind /dev "$0/dev"; exec chroot "$0" sh -c "$1"', str(root), INSTALL]
        done = subprocess.run(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(f"Java cannot be installed into the base image; see {log}")
    (root / "etc" / "resolv.conf").unlink()
    DockerArchive(NAME.replace("python", "java")).root(root).entrypoint("java").write(archive)
    shutil.rmtree(root, ignore_errors=True)
    return archive
