"""Topic manifests in a folder: DIR/topics/*.yaml, one topic a file, whatever its name.

A file that cannot be understood is a problem of its own: the topic it held before goes on as it was, and so do all
others. Files that come and go while an editor saves do not delete a topic: one must be missing for a while.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from smq_core.errors import InvalidManifest, UnknownTopic
from smq_operator.world import Problem, Wish
from smq_storage.annotate import annotated
from smq_storage.manifest import (
    ACTIVE,
    AUTOSCALING,
    PAUSED,
    TopicManifest,
    check_annotations,
    check_change,
    parse_manifest,
)

MISSING_FOR = 2_000_000
SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(slots=True)
class _File:
    """One manifest file as last read. ``stamp`` tells whether it changed."""

    stamp: tuple[int, int, int]
    wish: TopicManifest | None = None
    problem: str | None = None
    missing_since: int | None = None


class Manifests:
    """The folder. ``scan`` reads what changed; everything else answers from memory."""

    def __init__(self, folder: Path, clock: Callable[[], int]) -> None:
        self.folder = folder
        self._now = clock
        self._files: dict[str, _File] = {}

    def scan(self) -> bool:
        """Looks at the folder. True when a wish or a problem changed."""
        before = (self.wishes(), self.problems())
        seen = set()
        for path in sorted(self.folder.iterdir()) if self.folder.is_dir() else ():
            if path.suffix not in SUFFIXES or path.name.startswith("."):
                continue
            try:
                seen.add(path.name)
                self._look(path)
            except FileNotFoundError:
                seen.discard(path.name)
        for name in [name for name in self._files if name not in seen]:
            file = self._files[name]
            if file.missing_since is None:
                file.missing_since = self._now()
            if file.wish is None or self._now() - file.missing_since > MISSING_FOR:
                del self._files[name]
        return before != (self.wishes(), self.problems())

    def _look(self, path: Path) -> None:
        status = path.stat()
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        file = self._files.get(path.name)
        if file is not None and file.stamp == stamp:
            file.missing_since = None
            return
        file = self._files[path.name] = _File(stamp, wish=file.wish if file is not None else None)
        try:
            file.wish = parse_manifest(path.read_text())
            check_annotations(file.wish)
        except InvalidManifest as error:
            file.problem = error.message
        except (OSError, UnicodeDecodeError) as error:
            file.problem = f"cannot be read: {error}"

    def wishes(self) -> dict[str, Wish]:
        """The topics by full name; of two files for one topic the first by name counts."""
        found: dict[str, Wish] = {}
        for name, file in sorted(self._files.items()):
            if file.wish is not None and file.wish.full_name not in found:
                problem = f"{name}: {file.problem}" if file.problem is not None else None
                wish = file.wish
                found[wish.full_name] = Wish(wish.full_name, wish.spec, problem=problem, paused=wish.paused)
        return found

    def problems(self) -> list[Problem]:
        found = [Problem(name, file.problem) for name, file in sorted(self._files.items()) if file.problem is not None]
        owners: dict[str, str] = {}
        for name, file in sorted(self._files.items()):
            if file.wish is None:
                continue
            first = owners.setdefault(file.wish.full_name, name)
            if first != name:
                found.append(Problem(name, f"topic {file.wish.full_name} is in {first} already: this file is ignored"))
        return found

    def apply(self, text: str) -> tuple[str, str]:
        """Writes a manifest into the folder, atomically. Returns the full name and what was done.

        A pause stays, unless the manifest says something about it. Raises InvalidManifest when it is none, or changes
        what cannot change.
        """
        wish = parse_manifest(text)
        check_annotations(wish)
        self.scan()
        old = self.wishes().get(wish.full_name)
        if old is not None:
            check_change(old.spec, wish.spec)
            if old.paused and wish.autoscaling is None:
                # As with kubectl apply: who does not set an annotation does not take it away.
                text = annotated(text, AUTOSCALING, PAUSED)
                wish = parse_manifest(text)
            same = old.spec == wish.spec and old.paused == wish.paused and old.problem is None
            if same and self._path_of(wish.full_name).exists():
                return wish.full_name, "unchanged"
        self._write(self._path_of(wish.full_name), text)
        self.scan()
        return wish.full_name, "created" if old is None else "configured"

    def set_paused(self, topic: str, paused: bool) -> None:
        """Writes it into the topic's manifest. Raises UnknownTopic, InvalidManifest."""
        self.scan()
        wish = self.wishes().get(topic)
        if wish is None:
            raise UnknownTopic(f"there is no topic {topic}")
        if wish.paused == paused:
            return
        path = self._path_of(topic)
        try:
            text = annotated(path.read_text(), AUTOSCALING, PAUSED if paused else ACTIVE)
            parse_manifest(text)
        except InvalidManifest as error:
            raise InvalidManifest(f"{path.name} cannot be changed, mend it first: {error.message}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidManifest(f"{path.name} cannot be read ({error}): apply the topic's manifest again") from None
        self._write(path, text)
        self.scan()

    def delete(self, topic: str) -> None:
        """Removes the topic's file. Raises UnknownTopic."""
        self.scan()
        names = [name for name, file in self._files.items() if file.wish is not None and file.wish.full_name == topic]
        if not names:
            raise UnknownTopic(f"there is no topic {topic}")
        for name in names:
            (self.folder / name).unlink(missing_ok=True)
            del self._files[name]

    def _path_of(self, topic: str) -> Path:
        for name, file in sorted(self._files.items()):
            if file.wish is not None and file.wish.full_name == topic:
                return self.folder / name
        path = self.folder / f"{topic.replace('/', '.')}.yaml"
        count = 1
        while path.exists():  # a file of that name holds something else
            count += 1
            path = self.folder / f"{topic.replace('/', '.')}-{count}.yaml"
        return path

    def _write(self, path: Path, text: str) -> None:
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        with temporary.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
