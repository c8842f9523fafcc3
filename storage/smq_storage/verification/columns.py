"""The columns of a topic by the version of its schema."""

from __future__ import annotations

from collections.abc import Sequence

from smq_core.model.entities import Column, Layout, Topic


class TopicColumns:
    def __init__(self, topic: Topic, layout: Layout | None) -> None:
        self._versions = {it.version: it.columns for it in layout.schemas} if layout is not None else {}
        self._first = topic.spec.schema

    def of(self, version: int) -> Sequence[Column] | None:
        """Those of that version. None if nothing has them any more: the layout drops versions of sealed segments."""
        return self._versions.get(version, self._first if version == 0 else None)
