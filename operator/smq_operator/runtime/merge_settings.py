"""Which files of sealed segments the leader merges, and when."""

from __future__ import annotations

from dataclasses import dataclass

from smq_core.file_lists.small_files import SMALL_FILE_BYTES, SmallFilePolicy
from smq_core.model.entities import SECOND


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """Files below ``below_bytes`` are merged, ``after_us`` after their segment was sealed. 0 bytes: none are."""

    below_bytes: int = SMALL_FILE_BYTES
    after_us: int = 300 * SECOND

    @property
    def policy(self) -> SmallFilePolicy:
        return SmallFilePolicy(self.below_bytes)
