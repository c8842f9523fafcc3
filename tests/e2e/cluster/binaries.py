"""Kubernetes' own programs, built from Go modules and kept in a cache.

``kube`` is one program that is etcd, every Kubernetes component and kubectl, by the name it is called with;
``pause`` holds a Pod's namespaces; ``dns`` is CoreDNS. A stamp of the sources, the module versions and the compiler
says whether what is in the cache is what would be built. A program that others publish as a whole module, with its
chart, is built from that module itself when a test first needs it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("SMQ_E2E_CACHE") or Path.home() / ".cache" / "seaweedmq-e2e")
BIN = CACHE / "bin"
IMAGES = CACHE / "images"

KUBE_NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl")
HOW_TO_BUILD = "make cluster-build"
_ENVIRONMENT = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -trimpath"}
_GO_BUILD = ("nice", "-n", "15", "go", "build", "-ldflags")


class NotBuilt(Exception):
    """The programs are not in the cache, or are not those of these sources; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Module:
    """One Go module beside this file and the packages of it that become programs."""

    name: str
    packages: tuple[str, ...]
    minutes: str

    @property
    def folder(self) -> Path:
        return HERE / self.name

    @property
    def stamp_file(self) -> Path:
        return BIN / f"{self.name}.stamp"

    def stamp(self) -> str:
        """A digest of everything the programs depend on."""
        digest = hashlib.sha256(f"{sorted(_ENVIRONMENT.items())} {self.packages}\n".encode())
        sources = [p for p in self.folder.rglob("*") if p.suffix in (".go", ".mod", ".sum")]
        for path in sorted(sources):
            digest.update(f"{path.relative_to(self.folder)}\n".encode() + path.read_bytes())
        return digest.hexdigest()

    def built(self) -> bool:
        return self.stamp_file.exists() and self.stamp_file.read_text() == self.stamp()


KUBE = Module("kube", (".", "./pause"), "six minutes")
DNS = Module("dns", (".",), "a minute")


@dataclass(frozen=True, slots=True)
class PublishedModule:
    """A module that is a program with its own pinned dependencies. ``checksum`` is that of its go.sum line."""

    name: str
    path: str
    version: str
    checksum: str
    package: str

    def source(self) -> Path:
        """Its folder, which is read-only. Raises RuntimeError when it cannot be fetched or is another one."""
        _require_go()
        command = ["go", "mod", "download", "-json", f"{self.path}@{self.version}"]
        with tempfile.TemporaryDirectory() as outside:  # inside of a module, Go would change its go.sum
            done = subprocess.run(command, cwd=outside, capture_output=True, text=True)
        found = json.loads(done.stdout or "{}")
        if done.returncode or found.get("Sum") != self.checksum:
            reason = found.get("Error") or done.stderr.strip() or f"its checksum is {found.get('Sum')}"
            raise RuntimeError(f"{self.path} {self.version} cannot be used: {reason}")
        return Path(found["Dir"])

    def build(self) -> Path:
        """The program, built once for each version, in some minutes. Raises RuntimeError, CalledProcessError."""
        program = BIN / f"{self.name}-{self.version}"
        if not program.exists():
            BIN.mkdir(parents=True, exist_ok=True)
            new = program.with_name(f"{program.name}.new")
            print(f"building {self.name} {self.version} (some minutes the first time)", file=sys.stderr, flush=True)
            command = [*_GO_BUILD, "-s -w", "-o", str(new), self.package]
            subprocess.run(command, cwd=self.source(), env=os.environ | _ENVIRONMENT, check=True)
            new.replace(program)
        return program


# Kubeflow's, with the chart that users install.
SPARK_OPERATOR = PublishedModule(
    "spark-operator",
    "github.com/kubeflow/spark-operator/v2",
    "v2.5.0",
    "h1:NNgTHgQMbrGZSFJtprjssdtCaL/qlYYQY1EyXuRaP78=",
    "./cmd/operator",
)


def require(*modules: Module) -> None:
    """Raises NotBuilt when a module has to be built first."""
    missing = [m.name for m in modules if not m.built()]
    if missing:
        raise NotBuilt(f"{' and '.join(missing)} not built in {BIN}: run `{HOW_TO_BUILD}` (once; some minutes)")


def build(*modules: Module) -> None:
    """Builds what is not there. Raises RuntimeError when there is no Go, CalledProcessError when Go fails."""
    BIN.mkdir(parents=True, exist_ok=True)
    with (CACHE / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for module in modules:
            if not module.built():
                _build(module)


def _build(module: Module) -> None:
    _require_go()
    print(f"building {module.name} (about {module.minutes} the first time)", file=sys.stderr, flush=True)
    environment = os.environ | _ENVIRONMENT
    command = [*_GO_BUILD, _linker_flags(module, environment)]
    if module is KUBE:
        subprocess.run([*command, "-o", f"{BIN}/", *module.packages], cwd=module.folder, env=environment, check=True)
        for name in KUBE_NAMES:
            link = BIN / name
            link.unlink(missing_ok=True)
            link.symlink_to("kube")
    else:
        subprocess.run([*command, "-o", str(BIN / module.name), "."], cwd=module.folder, env=environment, check=True)
    module.stamp_file.write_text(module.stamp())


def _require_go() -> None:
    if shutil.which("go") is None:
        raise RuntimeError(
            "Go is needed to build what runs in the cluster (1.25 or newer): see https://go.dev/doc/install"
        )


def _linker_flags(module: Module, environment: dict[str, str]) -> str:
    """No debug data; and Kubernetes' version, without which clients and API server would say v0.0.0."""
    if module is not KUBE:
        return "-s -w"
    query = ["go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes"]
    found = subprocess.run(query, cwd=module.folder, env=environment, check=True, capture_output=True, text=True)
    version = found.stdout.strip()
    major, minor, _ = version.removeprefix("v").split(".", 2)
    package = "k8s.io/component-base/version"
    values = {
        "gitVersion": version,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": version.removeprefix("v"),
        "buildDate": "1970-01-01T00:00:00Z",
    }
    return " ".join(["-s -w", *(f"-X {package}.{key}={value}" for key, value in values.items())])
