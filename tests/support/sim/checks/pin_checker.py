"""What must hold of pins and of collection beside them; a violation has the number 15.

15. No file of a segment is deleted that a reader planned, while its pin lives. A pin is deleted by its reader, or after
    a leader has ended it, and never lives again. Files stay for the grace, whatever one leader's clock says. An upload
    that a chunk refers to is not deleted. In the end everything that was removed is gone, although readers come and go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smq_core.errors import DataLost
from smq_core.invariants import Violation
from smq_core.reading.pins import ReaderPin
from smq_operator.runtime.cleanup_settings import CleanupSettings
from smq_storage.catalog import paths
from smq_storage.object_store.json_codec import from_json
from support.sim.checks.protocol_checker import InvariantViolated
from support.sim.clients.uploads import FOLDER
from support.sim.engine.world import SECOND, World
from support.sim.filer.chunk_chain import INDEX, TOPIC, UID
from support.sim.filer.object_store import SimulatedStore

PINS = f"doc/{paths.pins_folder(TOPIC, UID)}/"
# For this long a removal may be on its way to the filer after the leader has read the clocks.
UNCLEAR = 12 * SECOND


class PinChecker:
    """Watches the store. ``ends`` has the end of each segment's chain."""

    def __init__(self, world: World, store: SimulatedStore, cleanup: CleanupSettings) -> None:
        self.world = world
        self.store = store
        self.cleanup = cleanup
        self.ends: dict[str, int] = {}
        self.kept = 0
        """How many removed segments were kept longer than the grace by a pin."""
        self._violation: Violation | None = None
        """The first one, because an error of a reader's thread does not end the history."""
        self._planned: dict[str, Mapping[str, int]] = {}
        self._released: set[str] = set()
        self._ended: set[str] = set()
        self._removed_at: dict[str, int] = {}
        self._listed: set[str] = set()
        self._referred: dict[str, str] = {}
        """The segment that refers to each upload."""
        store.watchers.append(self._changed)

    def planned(self, pin_id: str, segments: Mapping[str, int]) -> None:
        """A reader has planned these segments, by number."""
        self._planned[pin_id] = segments
        for name in segments if pin_id not in self._ended else ():
            if name in self._removed_at and not self.store.paths(f"seg/{name}/"):
                self._broken(name, f"{pin_id} plans it, and its files are gone")

    def released(self, pin_id: str) -> None:
        self._released.add(pin_id)

    def lost(self, reader: str, error: DataLost) -> None:
        self._broken(error.segment, f"{reader} misses a file from {error.start} on although its pin lives")

    def check_end(self, horizon: int, *, in_time: bool) -> None:
        """Long after the horizon nothing is left of what was removed before it (``in_time``), and no pin is too old."""
        if self._violation is not None:
            raise InvariantViolated(self._violation)
        for name, at in self._removed_at.items() if in_time else ():
            if at < horizon and self.store.paths(f"seg/{name}/"):
                self._broken(name, f"it was removed at {at / SECOND:.1f} s, and its files are still there")
        for path in self.store.paths(PINS):
            age = self.world.now - self.store.things[path].versions[0][0]
            if age > self.cleanup.max_pin_age_us + UNCLEAR:
                self._broken(path, f"it is {age / SECOND:.1f} s old")
        for path in self.store.paths(FOLDER):
            age = self.world.now - self.store.things[path].versions[0][0]
            if path.removeprefix(FOLDER) not in self._referred and age > self.cleanup.uploads_grace_us + UNCLEAR:
                self._broken(path, "nothing refers to it, and it is still there")

    # ---- as it happens

    def _changed(self, path: str, value: Any) -> None:
        if path == INDEX:
            listed = {entry.name for entry in value.entries}
            for name in self._listed - listed:
                self._removed_at[name] = self.world.now
                self.world.note("", name, "leaves the index")
            self._listed = listed
        elif path.startswith(PINS):
            self._pin_changed(path, value)
        elif path.startswith(FOLDER) and value is None:
            self._upload_deleted(path.removeprefix(FOLDER))
        elif path.startswith("seg/"):
            name = path.split("/")[1]
            if value is None:
                self._file_deleted(name, path)
            else:
                self._chunk_written(name, value.info)

    def _chunk_written(self, name: str, info: Any) -> None:
        self.ends[name] = info.first + info.rows
        if info.reference is not None:
            upload = info.reference.upload
            self._referred[upload] = name
            if self.store.truth(FOLDER + upload) is None:
                self._broken(name, f"it refers to {upload}, which is gone")

    def _pin_changed(self, path: str, value: Any) -> None:
        pin_id = paths.pin_id(path) or ""
        if value is None:
            if pin_id in self._planned and pin_id not in self._released | self._ended:
                self._broken(pin_id, "a leader deletes it, and has not ended it")
            return
        ended = from_json(ReaderPin, value).ended
        if pin_id in self._ended and not ended:
            if pin_id in self._planned:
                self._broken(pin_id, "it lives again")
            # Its reader was paused while it created the pin, and creates it anew. It has planned nothing yet.
            self._ended.discard(pin_id)
        if ended:
            self._ended.add(pin_id)
            versions = self.store.things[path].versions
            due = min(
                versions[-2][0] + from_json(ReaderPin, value).lifetime, versions[0][0] + self.cleanup.max_pin_age_us
            )
            if self.world.now < due:
                self._broken(pin_id, f"it is ended {(due - self.world.now) / SECOND:.1f} s too early")

    def _file_deleted(self, name: str, path: str) -> None:
        at = self._removed_at.get(name)
        if at is None:
            return self._broken(name, f"{path} is deleted, and the segment was not removed")
        age = self.world.now - at
        if age < self.cleanup.removed_files_grace_us - UNCLEAR:
            self._broken(name, f"{path} is deleted {age / SECOND:.1f} s after the removal")
        self.kept += age > self.cleanup.removed_files_grace_us + UNCLEAR
        if pin_id := self._pin_of(name):
            self._broken(name, f"{path} is deleted while {pin_id} lives")

    def _upload_deleted(self, upload: str) -> None:
        name = self._referred.get(upload)
        if name is not None and (name not in self._removed_at or self._pin_of(name)):
            self._broken(name, f"{upload} is deleted, and it refers to it")

    def _pin_of(self, name: str) -> str | None:
        """A living pin of a reader that planned this segment."""
        over = self._released | self._ended
        living = (it for it in self._planned if it not in over and self.store.truth(f"{PINS}{it}.json") is not None)
        return next((pin_id for pin_id in living if name in self._planned[pin_id]), None)

    def _broken(self, subject: str, what: str) -> None:
        self._violation = self._violation or Violation(15, subject, what)
        raise InvariantViolated(self._violation)
