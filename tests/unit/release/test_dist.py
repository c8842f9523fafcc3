"""`make dist`: a release has all its files, and a commit gives the same bytes each time."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from support.kube.chart import render
from tools import dist

VERSION: str = tomllib.loads((dist.ROOT / "pyproject.toml").read_text())["project"]["version"]
TIME = 1_700_000_000
# The builds wait for the processor on a busy machine, up to six minutes for a file of them.
pytestmark = pytest.mark.timeout(3600)
RELEASE = {
    "SHA256SUMS",
    f"seaweedmq-{VERSION}-py3-none-any.whl",
    f"seaweedmq-{VERSION}.tar.gz",
    f"seaweedmq-{VERSION}.tgz",
    *(f"seaweedmq-{image}-{VERSION}-context.tar.gz" for image in ("broker", "operator")),
    *(f"seaweedmq-{image}-{VERSION}.cdx.json" for image in ("broker", "operator")),
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tracked files of the clone."""
    folder = tmp_path_factory.mktemp("source")
    dist.export_tracked(folder)
    return folder


def contents(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return {member.name: opened.extractfile(member).read() for member in opened if member.isfile()}  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def release(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that `make dist` writes."""
    folder = tmp_path_factory.mktemp("dist")
    dist.write_dist(source, folder, time=TIME)
    return folder


@pytest.mark.slow
def test_a_release_has_all_files_and_their_checksums(release: Path) -> None:
    files = {path.name: path.read_bytes() for path in release.iterdir()}
    assert files.keys() == RELEASE
    lines = [line.split("  ") for line in (release / "SHA256SUMS").read_text().splitlines()]
    assert {name: digest for digest, name in lines} == {
        name: hashlib.sha256(data).hexdigest() for name, data in files.items() if name != "SHA256SUMS"
    }


@pytest.mark.slow
def test_wheel_and_sdist_are_the_same_bytes_from_another_copy(source: Path, release: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(source, copy, copy_function=shutil.copyfile)  # other times, and no file can be run
    (copy / "README.md").chmod(0o600)
    command = [sys.executable, "-m", "build", "--no-isolation", "--sdist", "--wheel", "--outdir", str(tmp_path)]
    dist.run(*command, str(copy), time=TIME)  # with both options the wheel is built from the folder
    wheel, sdist = f"seaweedmq-{VERSION}-py3-none-any.whl", f"seaweedmq-{VERSION}.tar.gz"
    assert (tmp_path / wheel).read_bytes() == (release / wheel).read_bytes(), "the sdist lacks something"
    assert contents((tmp_path / sdist).read_bytes()) == contents((release / sdist).read_bytes())


@pytest.mark.slow
def test_the_wheel_has_all_files_of_its_packages(source: Path, release: Path) -> None:
    with zipfile.ZipFile(release / f"seaweedmq-{VERSION}-py3-none-any.whl") as packed:
        names = set(packed.namelist())
    packages = tomllib.loads((source / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {
        path.relative_to((source / package).parent).as_posix()
        for package in packages["packages"]
        for path in (source / package).rglob("*")
        if path.is_file()
    }
    assert "smq_operator/dashboard/page.html" in needed and "smq/cli/examples/flights.yaml" in needed
    assert {name for name in names if ".dist-info/" not in name} == needed


def test_an_archive_has_the_same_bytes_whenever_and_by_whomever_it_is_written(source: Path, tmp_path: Path) -> None:
    shutil.copytree(source / dist.CHART, tmp_path / dist.CHART, copy_function=shutil.copyfile)
    (tmp_path / dist.CHART / "values.yaml").chmod(0o600)
    for name, folder in (("first", source), ("second", tmp_path)):
        dist.write_archive(tmp_path / name, dist.chart_files(folder), time=TIME)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


@pytest.mark.parametrize("tag", ["0.0.1", f"v{VERSION}.dev0", VERSION])
def test_a_tag_of_another_version_is_refused(tag: str) -> None:
    dist.check_tag(f"v{VERSION}", VERSION)
    with pytest.raises(dist.DistFailed, match=f"is not v{VERSION}: set the version"):
        dist.check_tag(tag, VERSION)


def test_the_charts_package_is_the_chart(source: Path, tmp_path: Path) -> None:
    package = tmp_path / "seaweedmq.tgz"
    dist.write_archive(package, dist.chart_files(source), time=TIME)
    dist.check_chart(package)
    with tarfile.open(package) as archive:
        archive.extractall(tmp_path, filter="data")
    assert render({}, folder=tmp_path / "seaweedmq") == render({})


def test_a_package_of_a_broken_chart_is_refused(source: Path, tmp_path: Path) -> None:
    broken = tmp_path / "Chart.yaml"
    broken.write_text("apiVersion: v2\nname: seaweedmq\nversion: newest\n")
    files = dist.chart_files(source) | {"seaweedmq/Chart.yaml": broken}
    dist.write_archive(tmp_path / "seaweedmq.tgz", files, time=TIME)
    with pytest.raises(dist.DistFailed, match="newest"):
        dist.check_chart(tmp_path / "seaweedmq.tgz")


@pytest.mark.parametrize("image", dist.IMAGES)
def test_a_build_context_has_what_the_dockerfile_copies(source: Path, tmp_path: Path, image: str) -> None:
    dist.write_archive(tmp_path / "context.tar.gz", dist.context_files(source, image), time=TIME)
    files = contents((tmp_path / "context.tar.gz").read_bytes())
    assert files["Dockerfile"] == (source / f"Dockerfile.{image}").read_bytes()
    assert {"pyproject.toml", "README.md", "LICENSE", f"requirements/{image}.txt"} <= files.keys()
    assert "operator/smq_operator/dashboard/page.html" in files and "client/smq/cli/app.py" in files
    assert not [name for name in files if name.startswith(("tests/", "docs/", "spark/"))]


@pytest.mark.slow
@pytest.mark.parametrize("image", dist.IMAGES)
def test_the_sbom_lists_what_is_pinned(source: Path, release: Path, image: str) -> None:
    listed = json.loads((release / f"seaweedmq-{image}-{VERSION}.cdx.json").read_text())
    pins = (source / "requirements" / f"{image}.txt").read_text()
    assert {(c["name"], c["version"]) for c in listed["components"]} == set(re.findall(r"(?m)^([^=\s]+)==(\S+)", pins))
    assert listed["metadata"]["component"]["version"] == VERSION
    assert {"alg": "SHA-256", "content": re.findall(r"sha256:(\w+)", pins)[0]} in [
        digest
        for component in listed["components"]
        for reference in component["externalReferences"]
        for digest in reference.get("hashes", [])
    ]


def test_the_wheel_is_built_by_the_builder_of_the_images(source: Path) -> None:
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    pinned = re.findall(r"(?m)^hatchling==\S+", (source / "requirements/build.txt").read_text())
    assert pinned == [text for text in project["optional-dependencies"]["dev"] if text.startswith("hatchling")]
