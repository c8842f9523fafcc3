"""How long the leader waits before it removes data that is no longer needed."""

from __future__ import annotations

from dataclasses import dataclass

from smq_core.model.entities import SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupSettings:
    """All in microseconds.

    ``retention_interval_us`` is the interval of retention, and of checking whether a deleted topic's grace has ended.
    ``removed_files_grace_us`` is how long files stay after their segment left the index, for readers that still read
    them. A reader's pin keeps them longer, and protects nothing once it is older than ``max_pin_age_us``.
    ``superseded_files_grace_us`` is the same for the chunks of a living segment whose rows are in merged files; None
    keeps them until retention removes the segment.
    ``deleted_topics_grace_us`` is how long the data of a deleted topic stays. ``orphan_grace_us`` is the age at which a
    file counts as orphaned if nothing refers to it, and ``uploads_grace_us`` that of an upload.
    ``orphan_check_interval_us`` is the interval of searching for those, and for topics that were deleted while there
    was no leader.
    """

    retention_interval_us: int = 10 * SECOND
    removed_files_grace_us: int = 3600 * SECOND
    max_pin_age_us: int = 24 * 3600 * SECOND
    deleted_topics_grace_us: int = 600 * SECOND
    orphan_grace_us: int = 3600 * SECOND
    orphan_check_interval_us: int = 600 * SECOND
    uploads_grace_us: int = 3 * 24 * 3600 * SECOND
    superseded_files_grace_us: int | None = 3600 * SECOND

    @property
    def max_upload_age_us(self) -> int:
        """Brokers publish no older uploads, so that one is never deleted while it is being published."""
        return self.uploads_grace_us // 2
