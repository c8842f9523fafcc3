"""Container images as docker-archive files, made without a builder, an engine or a registry."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any, Self

# What a root file system made by debootstrap has and a container does not need.
_LEFT_OUT = (
    "var/cache/apt/",
    "var/lib/apt/lists/",
    "usr/share/doc/",
    "usr/share/man/",
    "usr/share/locale/",
    "usr/share/i18n/",
    "var/log/",
    "proc/",
    "sys/",
    "dev/",
    "run/",
    "debootstrap/",
)


class DockerArchive:
    """An image to be: what is added makes one layer on top of those of ``base``."""

    def __init__(self, name: str, base: Path | None = None) -> None:
        self.name = name
        self._base = base
        self._added: list[tuple[Path, str]] = []
        self._roots: list[Path] = []
        self._changes: dict[str, Any] = {}
        self._environment: dict[str, str] = {}

    def add(self, source: Path, inside: str) -> Self:
        """A file or folder, owned by root."""
        self._added.append((source, inside.lstrip("/")))
        return self

    def root(self, folder: Path) -> Self:
        """A whole root file system, owners as they are."""
        self._roots.append(folder)
        return self

    def entrypoint(self, *words: str) -> Self:
        self._changes |= {"Entrypoint": list(words), "Cmd": None}
        return self

    def user(self, user: str) -> Self:
        self._changes["User"] = user
        return self

    def working_directory(self, folder: str) -> Self:
        self._changes["WorkingDir"] = folder
        return self

    def env(self, **values: str) -> Self:
        self._environment |= values
        return self

    def write(self, archive: Path) -> None:
        """Writes the archive; the old one stays until the new one is whole."""
        config, layers = self._inherited()
        layer = archive.with_suffix(".layer")
        whole = archive.with_suffix(".new")
        try:
            self._write_layer(layer)
            digest = _digest(layer)
            config["rootfs"]["diff_ids"].append(f"sha256:{digest}")
            self._change(config["config"])
            with tarfile.open(whole, "w") as out:
                if self._base:
                    with tarfile.open(self._base) as base:
                        for name in layers:
                            out.addfile(base.getmember(name), base.extractfile(name))
                out.add(layer, f"{digest}.tar", filter=_of_root)
                _put(out, "config.json", config)
                names = [*layers, f"{digest}.tar"]
                _put(out, "manifest.json", [{"Config": "config.json", "RepoTags": [self.name], "Layers": names}])
            whole.replace(archive)
        finally:
            layer.unlink(missing_ok=True)
            whole.unlink(missing_ok=True)

    def _inherited(self) -> tuple[dict[str, Any], list[str]]:
        if self._base is None:
            path = {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]}
            machine = {"architecture": "amd64", "os": "linux"}
            return machine | {"config": path, "rootfs": {"type": "layers", "diff_ids": []}}, []
        with tarfile.open(self._base) as base:
            manifest = json.load(_member(base, "manifest.json"))[0]
            config = json.load(_member(base, manifest["Config"]))
        config.pop("history", None)
        return config, manifest["Layers"]

    def _change(self, config: dict[str, Any]) -> None:
        environment = dict(entry.split("=", 1) for entry in config.get("Env") or [])
        environment |= self._environment
        config["Env"] = [f"{name}={value}" for name, value in environment.items()]
        for name, value in self._changes.items():
            config.pop(name, None)
            if value is not None:
                config[name] = value

    def _write_layer(self, layer: Path) -> None:
        with tarfile.open(layer, "w") as out:
            for root in self._roots:
                for entry in sorted(root.iterdir()):
                    out.add(entry, entry.name, filter=_needed)
            for source, inside in self._added:
                out.add(source.resolve(), inside, filter=_of_root)


def _needed(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if entry.name.startswith(_LEFT_OUT) or entry.name.endswith(".pyc") else entry


def _of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry = copy.copy(entry)
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    return entry


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _member(archive: tarfile.TarFile, name: str) -> io.BufferedIOBase:
    file = archive.extractfile(name)
    if file is None:
        raise ValueError(f"{name} in {archive.name!r} is not a file")
    return file  # type: ignore[return-value]


def _put(archive: tarfile.TarFile, name: str, document: object) -> None:
    data = json.dumps(document).encode()
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))
