"""Everything of a release, in one folder: wheel, sdist, chart, the images' build contexts, SBOMs and checksums.

    python tools/dist.py            writes dist/ from the files of the last commit

`make dist` runs it. The files depend on nothing but the commit and the versions of Python and of the builder: times are
those of the commit, and names, owners and modes do not come from this machine.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import helm_python as helm

ROOT = Path(__file__).resolve().parent.parent
CHART = "charts/seaweedmq"
IMAGES = ("broker", "operator")
COPIED = re.compile(r"^COPY (?!--)(.*) \S+$", re.M)


class DistFailed(Exception):
    """The release could not be built; the message says why and what to do."""


def write_dist(source: Path, target: Path, *, time: int) -> None:
    """Writes all files of a release of ``source``, a folder with committed files only."""
    version = version_of(source)
    build_packages(source, target, time=time)
    write_archive(target / f"seaweedmq-{version}.tgz", chart_files(source), time=time)
    check_chart(target / f"seaweedmq-{version}.tgz")
    for image in IMAGES:
        context = target / f"seaweedmq-{image}-{version}-context.tar.gz"
        write_archive(context, context_files(source, image), time=time)
        write_sbom(source, image, target / f"seaweedmq-{image}-{version}.cdx.json", time=time)
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(target.iterdir())]
    (target / "SHA256SUMS").write_text("".join(sums))


def version_of(source: Path) -> str:
    version: str = tomllib.loads((source / "pyproject.toml").read_text())["project"]["version"]
    return version


def check_tag(tag: str, version: str) -> None:
    """Raises DistFailed where a tag is not that of the version."""
    if tag != f"v{version}":
        raise DistFailed(f"the tag {tag} is not v{version}: set the version in pyproject.toml, then tag its commit")


def build_packages(source: Path, target: Path, *, time: int) -> None:
    """Builds the sdist, then the wheel from the sdist, so that the sdist has all that a wheel needs."""
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), str(source), time=time)


def chart_files(source: Path) -> dict[str, Path]:
    """The chart's files by their names in its package, as ``helm package`` names them."""
    return {f"seaweedmq/{name}": path for name, path in files_below(source / CHART)}


def check_chart(package: Path) -> None:
    """Raises DistFailed where ``helm lint`` finds mistakes in the package."""
    report = helm.lint(str(package), {"filer": {"url": "s3://bucket"}})
    found = [f"{message['path']}: {message['error']}" for message in report["messages"] if message["severity"] >= 2]
    if found or report["errors"]:
        raise DistFailed("\n".join(["Helm finds mistakes in the chart's package:", *report["errors"], *found]))


def context_files(source: Path, image: str) -> dict[str, Path]:
    """What an image is built from, by name: its Dockerfile, and what that copies."""
    dockerfile = source / f"Dockerfile.{image}"
    files = {"Dockerfile": dockerfile}
    for copied in COPIED.findall(dockerfile.read_text()):
        for name in copied.split():
            if (source / name).is_dir():
                files |= {f"{name}/{below}": path for below, path in files_below(source / name)}
            else:
                files[name] = source / name
    return files


def files_below(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in folder.rglob("*"):
        if path.is_file():
            yield path.relative_to(folder).as_posix(), path


def write_archive(target: Path, files: Mapping[str, Path], *, time: int) -> None:
    """Writes a .tar.gz of ``files`` that depends on their names, bytes and the right to run them only."""
    with (
        target.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=time) as compressed,
        tarfile.open(mode="w", fileobj=compressed, format=tarfile.PAX_FORMAT) as archive,
    ):
        for name in sorted(files):
            info = tarfile.TarInfo(name)
            info.size = files[name].stat().st_size
            info.mtime = time
            info.mode = 0o755 if os.access(files[name], os.X_OK) else 0o644
            with files[name].open("rb") as content:
                archive.addfile(info, content)


def write_sbom(source: Path, image: str, target: Path, *, time: int) -> None:
    """Writes a CycloneDX list of the packages that are pinned for an image, with their hashes."""
    command = [sys.executable, "-m", "cyclonedx_py", "requirements", "--output-reproducible", "--short-PURLs"]
    command += ["--pyproject", str(source / "pyproject.toml"), "--output-file", str(target)]
    run(*command, str(source / "requirements" / f"{image}.txt"), time=time)


def run(*command: str, time: int) -> None:
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(time)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise DistFailed(f"`{' '.join(command)}` failed:\n{(done.stdout + done.stderr)[-3000:]}")


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DistFailed(f"a release is built from a clone of git: {done.stderr.strip()}")
    return done.stdout


def export_tracked(target: Path) -> None:
    """Copies the files that git tracks, as they are in the clone, and nothing that lies beside them."""
    for name in git("ls-files", "-z").split("\0"):
        if name and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="the folder; what is in it is replaced")
    parser.add_argument("--tag", help="fail unless it is the tag of this version")
    arguments = parser.parse_args()
    output: Path = arguments.output
    try:
        if arguments.tag is not None:
            check_tag(arguments.tag, version_of(ROOT))
        if changed := git("status", "--porcelain"):
            raise DistFailed(f"commit these files or remove them first; a release is built from a commit:\n{changed}")
        if output.exists() and any(output.iterdir()) and not (output / "SHA256SUMS").exists():
            raise DistFailed(f"{output} has files that are no release: name another folder with --output, or empty it")
        with tempfile.TemporaryDirectory() as folder:
            source, built = Path(folder) / "source", Path(folder) / "dist"
            export_tracked(source)
            built.mkdir()
            write_dist(source, built, time=int(git("log", "-1", "--format=%ct")))
            shutil.rmtree(output, ignore_errors=True)
            shutil.copytree(built, output)
    except DistFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    print((output / "SHA256SUMS").read_text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
