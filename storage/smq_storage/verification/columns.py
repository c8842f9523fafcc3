"""The columns of a topic by the version of its schema."""

from __future__ import annotations

from collections.abc import Sequence

from smq_core.model.entities import Column, Layout, Topic


class TopicColumns:
    def __init__(self, topic: Topic, layout: Layout | None) -> None:
        self._versions = {it.version: it.columns for it in layout.schemas} if layout is not None else {}
        self._first = topic.spec.schema

    def of(self, version: int) -> Sequence[Column]:
        """Those of that version; those of the spec if the layout does not have the version."""
        return self._versions.get(version, self._first)
