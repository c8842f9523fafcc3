"""DIR/brokers/<name>/journal: the journals of a broker, with a folder for each incarnation.

A broker writes and empties its folder itself. The leader only looks at what is there: the journal of a process that has
ended comes back with the next process, unless nothing of it is left.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

FOLDER = "journal"


class BrokerJournals:
    """``folder`` is DIR/brokers. Without ``enabled`` brokers write no journals, but still recover what there is."""

    def __init__(self, folder: Path, *, enabled: bool) -> None:
        self._folder = folder
        self._enabled = enabled

    def path_for(self, broker: str) -> Path | None:
        """The folder that a new process of this broker uses; None if it has no journal."""
        return self._path(broker) if self._enabled or self.has_any(broker) else None

    def has(self, broker: str, incarnation: str) -> bool:
        """Whether the journal of this incarnation has segments. True if that cannot be found out."""
        return _has_segments(self._path(broker) / quote(incarnation, safe=""))

    def is_left(self, broker: str, incarnation: str) -> bool:
        """Whether a new process of this broker finds the folder of this incarnation, be it without segments.

        True if that cannot be found out.
        """
        path = self.path_for(broker)
        try:
            return path is not None and (path / quote(incarnation, safe="")).exists()
        except OSError:
            return True

    def has_any(self, broker: str) -> bool:
        """Whether any incarnation of this broker left segments in its journal."""
        try:
            return any(_has_segments(each) for each in self._path(broker).iterdir() if each.is_dir())
        except FileNotFoundError:
            return False
        except OSError:
            return True

    def brokers(self) -> list[str]:
        """The names of all brokers that left segments in their journals."""
        return sorted(path.parent.name for path in self._folder.glob(f"*/{FOLDER}") if self.has_any(path.parent.name))

    def _path(self, broker: str) -> Path:
        return self._folder / broker / FOLDER


def _has_segments(incarnation: Path) -> bool:
    """A folder of an incarnation has one for each topic, and they have one for each segment."""
    try:
        return any(segment.is_dir() for topic in incarnation.iterdir() if topic.is_dir() for segment in topic.iterdir())
    except FileNotFoundError:
        return incarnation.exists()  # a topic's folder was removed meanwhile
    except OSError:
        return True
