"""What a client knows of the segments that have left the layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from smq_core.dag import unexplained
from smq_core.model import Layout, SealedSegment
from smq_core.numbers import NONE, Numbers


@dataclass(frozen=True, slots=True)
class Past:
    """``sealed`` can be read; ``removed`` are the numbers of those that retention took away, None: nobody said.

    ``ends`` are the ends of the last removed ones, by name.
    """

    sealed: Mapping[str, SealedSegment]
    removed: Numbers | None = None
    ends: Mapping[str, int] = field(default_factory=dict)

    def unexplained(self, layout: Layout) -> set[str]:
        """The predecessors that are neither there nor said to be removed: this is older than the layout.

        Of a leader that does not say what was removed, these may be just that.
        """
        return unexplained(layout, list(self.sealed.values()), self.removed or NONE)
