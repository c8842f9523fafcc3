"""Checks a history whose topic changes its schema.

18. A version of the schema never changes, and the newest one is never replaced by an older one. Versions never decrease
    along the segment DAG, a segment opens with the newest one, every batch in it has its version, and each version is a
    desired state that is allowed. No column is dropped but those that a desired state drops. The layout has the
    versions of its segments.
19. At most one in eight of the segments, and at least one, is planned to be sealed for a new schema at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from smq_core.invariants import Violation
from smq_core.model.entities import Layout, Phase, Reason
from smq_core.replica.log_entries import Entry
from support.sim.checks.protocol_checker import ProtocolChecker
from support.sim.clients.messages import SimulatedSubBatch

if TYPE_CHECKING:
    from support.sim.brokers.hosted_segment import SimulatedSegment
    from support.sim.histories.schema_change import SchemaScenario


class SchemaChecker(ProtocolChecker):
    scenario: SchemaScenario
    """Set when the history has drawn it."""

    def _layout(self, layout: Layout) -> None:
        before = self.layouts[-1][1] if self.layouts else None
        super()._layout(layout)
        self.must(self._schema_violations(before, layout))
        if before is not None:
            self.must(_rollout_violations(before, layout))

    def _schema_violations(self, before: Layout | None, layout: Layout) -> list[Violation]:
        found = []
        known = {it.version: it for _, older in self.layouts for it in older.schemas}
        for schema in layout.schemas:
            if known.get(schema.version, schema) != schema:
                found.append(Violation(18, "layout", f"version {known[schema.version]} became {schema}"))
        if layout.schemas[-1].version < max(known, default=0):
            found.append(Violation(18, "layout", f"goes back from version {max(known)} to {layout.schemas[-1]}"))
        missing = {s.schema_version for s in layout.segments} - {it.version for it in layout.schemas}
        if missing:
            found.append(Violation(18, "layout", f"segments have versions {missing}, the layout has not"))
        if set(layout.schemas[-1].columns) not in self.scenario.allowed_states:
            found.append(Violation(18, "layout", f"{layout.schemas[-1]} was never desired, or is not allowed"))
        if not set(layout.schemas[-1].dropped) <= self.scenario.dropped:
            found.append(
                Violation(18, "layout", f"dropped {layout.schemas[-1].dropped}, desired {self.scenario.dropped}")
            )
        versions = {s.name: s.schema_version for _, older in self.layouts for s in older.segments}
        for segment in layout.segments:
            if before is not None and segment.name in before:
                continue
            if segment.schema_version != layout.schemas[-1].version:
                found.append(Violation(18, segment.name, f"opens with version {segment.schema_version}"))
            for name in segment.predecessors:
                if versions[name] > segment.schema_version:
                    found.append(Violation(18, segment.name, f"goes back from version {versions[name]} of {name}"))
        return found

    def appended(self, hosted: SimulatedSegment, entry: Entry, watermark: int) -> None:
        super().appended(hosted, entry, watermark)
        sub_batch, version = entry.batch.payload, hosted.segment.schema_version
        assert isinstance(sub_batch, SimulatedSubBatch)
        if sub_batch.version != version:
            self.must(
                [Violation(18, hosted.name, f"has version {version}, and a batch of version {sub_batch.version}")]
            )


def _rollout_violations(before: Layout, layout: Layout) -> list[Violation]:
    planned = [
        s.name
        for s in layout.segments
        if s.sealed_because is Reason.SCHEMA and not (s.name in before and before.segment(s.name).successors)
    ]
    written = [s for s in before.segments if s.phase is not Phase.PENDING]
    if len(planned) > max(1, len(written) // 8):
        return [Violation(19, "layout", f"of {len(written)} segments {', '.join(planned)} are sealed together")]
    return []
