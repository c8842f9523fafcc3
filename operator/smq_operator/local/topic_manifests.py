"""Topic manifests in a folder: DIR/topics/*.yaml, one topic per file, under any file name.

An invalid file is reported as a problem; its topic keeps its last valid spec, and other topics are not affected.
Editors remove and create files when they save, so a topic is deleted only if its file is missing for a while.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from smq_core.errors import Conflict, SpecRejected, UnknownTopic
from smq_core.model.entities import TopicSpec
from smq_core.model.names import bounded
from smq_operator.platform_port import AppliedManifest, DesiredTopic, Problem, manifest_of
from smq_storage.topic_manifests.annotation_editor import set_annotation
from smq_storage.topic_manifests.parser import (
    ACTIVE,
    AUTOSCALING_ANNOTATION,
    PAUSED,
    ManifestDocument,
    TopicManifest,
    check_annotations,
    check_change,
    parse_manifest,
)
from smq_storage.topic_manifests.spec_editor import edit_spec
from smq_storage.topic_manifests.spec_patch import SpecPatch
from smq_storage.topic_manifests.yaml_documents import check_size

MISSING_GRACE_US = 2_000_000
SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(slots=True)
class _ManifestFile:
    """One manifest file as last read. If ``stamp`` differs, the file has changed."""

    stamp: tuple[int, int, int]
    desired: TopicManifest | None = None
    problem: str | None = None
    missing_since: int | None = None


class TopicManifests:
    """The folder. ``scan`` reads changed files; the other methods use what it read."""

    def __init__(self, folder: Path, clock: Callable[[], int]) -> None:
        self.folder = folder
        self._now = clock
        self._files: dict[str, _ManifestFile] = {}

    def scan(self) -> bool:
        """Reads changed files. True if a desired topic or a problem has changed."""
        before = (self.desired_topics(), self.problems())
        seen = set()
        for path in sorted(self.folder.iterdir()) if self.folder.is_dir() else ():
            if path.suffix not in SUFFIXES or path.name.startswith("."):
                continue
            try:
                seen.add(path.name)
                self._read(path)
            except FileNotFoundError:
                seen.discard(path.name)
        for name in [name for name in self._files if name not in seen]:
            file = self._files[name]
            if file.missing_since is None:
                file.missing_since = self._now()
            if file.desired is None or self._now() - file.missing_since > MISSING_GRACE_US:
                del self._files[name]
        return before != (self.desired_topics(), self.problems())

    def _read(self, path: Path) -> None:
        stamp = _stamp(path.stat())
        file = self._files.get(path.name)
        if file is not None and file.stamp == stamp:
            file.missing_since = None
            return
        file = self._files[path.name] = _ManifestFile(stamp, desired=file.desired if file is not None else None)
        try:
            if not path.is_file():  # reading from a pipe would wait for a writer
                raise SpecRejected("is no file: remove it, or put a Topic manifest there")
            check_size(path.stat().st_size)
            file.desired = parse_manifest(path.read_text())
            check_annotations(file.desired)
        except SpecRejected as error:
            file.problem = error.message
        except (OSError, UnicodeDecodeError) as error:
            file.problem = f"cannot be read: {error}"
        except Exception as error:  # what the parser did not expect: such a file must affect no other one
            file.problem = f"cannot be parsed: {type(error).__name__}: {bounded(str(error), 300)}"

    def desired_topics(self) -> dict[str, DesiredTopic]:
        """The topics by full name. Of two files for one topic, the first by file name counts."""
        found: dict[str, DesiredTopic] = {}
        for name, file in sorted(self._files.items()):
            if file.desired is not None and file.desired.full_name not in found:
                problem = f"{name}: {file.problem}" if file.problem is not None else None
                desired = file.desired
                found[desired.full_name] = DesiredTopic(
                    name=desired.full_name, spec=desired.spec, problem=problem, paused=desired.paused
                )
        return found

    def problems(self) -> list[Problem]:
        found = [Problem(name, file.problem) for name, file in sorted(self._files.items()) if file.problem is not None]
        owners: dict[str, str] = {}
        for name, file in sorted(self._files.items()):
            if file.desired is None:
                continue
            first = owners.setdefault(file.desired.full_name, name)
            if first != name:
                found.append(
                    Problem(name, f"topic {file.desired.full_name} is in {first} already: this file is ignored")
                )
        return found

    def apply(self, manifest: ManifestDocument, preview: bool = False) -> AppliedManifest:
        """Writes a manifest into the folder, atomically, unless it is a preview. Returns what was done.

        A pause stays, unless the manifest says something about it. Raises SpecRejected if it changes what
        cannot change.
        """
        text, desired = manifest.text, manifest.topic
        check_annotations(desired)
        self.scan()
        old = self.desired_topics().get(desired.full_name)
        if old is not None:
            check_change(old.spec, desired.spec)
            if old.paused and desired.autoscaling is None:
                # As with kubectl apply, a manifest without the annotation does not remove it.
                text = set_annotation(text, AUTOSCALING_ANNOTATION, PAUSED)
                desired = replace(desired, autoscaling=PAUSED)
            same = old.spec == desired.spec and old.paused == desired.paused and old.problem is None
            if same and self._path_of(desired.full_name).exists():
                return AppliedManifest(desired.full_name, "unchanged", manifest_of(old), manifest_of(old))
        if not preview:
            self._write(self._path_of(desired.full_name), text, desired)
        before = manifest_of(old) if old is not None else None
        return AppliedManifest(desired.full_name, "created" if old is None else "configured", before, desired)

    def set_paused(self, topic: str, paused: bool) -> None:
        """Writes the pause into the topic's manifest. Raises UnknownTopic, SpecRejected."""
        if self._scanned(topic).paused != paused:
            self._edit(topic, lambda text: set_annotation(text, AUTOSCALING_ANNOTATION, PAUSED if paused else ACTIVE))

    def change_spec(self, topic: str, before: TopicSpec, patch: SpecPatch) -> None:
        """Writes these fields into the topic's manifest. Raises UnknownTopic, SpecRejected, and Conflict if its spec is
        not ``before``."""
        if self._scanned(topic).spec != before:
            raise Conflict(f"the manifest of {topic} was changed meanwhile: look at it and try again")
        self._edit(topic, lambda text: edit_spec(text, patch))

    def _scanned(self, topic: str) -> DesiredTopic:
        """The topic as its file is now. Raises UnknownTopic."""
        self.scan()
        desired = self.desired_topics().get(topic)
        if desired is None:
            raise UnknownTopic(f"there is no topic {topic}")
        return desired

    def _edit(self, topic: str, change: Callable[[str], str]) -> None:
        """Replaces the text of the topic's file. Raises SpecRejected if it is no valid manifest, before or after."""
        path = self._path_of(topic)
        try:
            text = change(path.read_text())
            changed = parse_manifest(text)
        except SpecRejected as error:
            raise SpecRejected(f"{path.name} cannot be changed, mend it first: {error.message}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise SpecRejected(f"{path.name} cannot be read ({error}): apply the topic's manifest again") from None
        self._write(path, text, changed)

    def delete(self, topic: str) -> None:
        """Removes the topic's file. Raises UnknownTopic."""
        self.scan()
        names = [
            name for name, file in self._files.items() if file.desired is not None and file.desired.full_name == topic
        ]
        if not names:
            raise UnknownTopic(f"there is no topic {topic}")
        for name in names:
            (self.folder / name).unlink(missing_ok=True)
            del self._files[name]

    def _path_of(self, topic: str) -> Path:
        for name, file in sorted(self._files.items()):
            if file.desired is not None and file.desired.full_name == topic:
                return self.folder / name
        path = self.folder / f"{topic.replace('/', '.')}.yaml"
        count = 1
        while path.exists():  # a file of that name contains another topic
            count += 1
            path = self.folder / f"{topic.replace('/', '.')}-{count}.yaml"
        return path

    def _write(self, path: Path, text: str, desired: TopicManifest) -> None:
        """Replaces the file and remembers what it says, so that the next scan does not parse it again."""
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        with temporary.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            stamp = _stamp(os.fstat(file.fileno()))
        temporary.replace(path)
        self._files[path.name] = _ManifestFile(stamp, desired)


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    return (status.st_mtime_ns, status.st_size, status.st_ino)
