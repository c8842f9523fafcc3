"""Rules of schema changes that the simulation must detect when they are broken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from simulation.mutations.mutation_table import MutationTable, Patch
from smq_core.model import layout_transitions, schema_evolution
from smq_core.model.entities import TopicSchema
from smq_core.reconcile import schema_rollout, seal_planner, topic_reconciler
from support.sim.brokers.producer_stream import SimulatedProducerStream
from support.sim.clients.messages import SimulatedSubBatch
from support.sim.clients.producer import SimulatedProducer

MUTATIONS = MutationTable()
mutation = MUTATIONS.add


@mutation
def a_leader_with_an_older_desired_state_changes_the_schema(patch: Patch) -> None:
    """What an older desired state lacks was not dropped by anybody."""
    patch.setattr(schema_evolution, "is_stale", lambda newest, generation: False)


@mutation
def the_newest_generation_is_not_recorded(patch: Patch) -> None:
    """A version records the generation that it comes from."""
    original = topic_reconciler.evolve

    def evolve(*args: Any) -> Any:
        found = original(*args)
        return replace(found, generation=0)

    patch.setattr(topic_reconciler, "evolve", evolve)


@mutation
def a_new_leader_forgets_the_history(patch: Patch) -> None:
    """The layout, not the stored topic, says what the newest version is."""
    patch.setattr(topic_reconciler, "schema_history", lambda layout, stored: (TopicSchema(0, tuple(stored)),))


@mutation
def a_change_that_is_not_allowed_is_followed(patch: Patch) -> None:
    """A schema that is not allowed changes nothing."""
    patch.setattr(schema_evolution, "violations", lambda *args: [])


@mutation
def successors_keep_the_first_version(patch: Patch) -> None:
    """A segment opens with the newest version."""
    original = layout_transitions._new_segments

    def new_segments(layout: Any, *rest: Any) -> Any:
        return original(replace(layout, schemas=layout.schemas[:1]), *rest)

    patch.setattr(layout_transitions, "_new_segments", new_segments)


@mutation
def only_one_segment_changes(patch: Patch) -> None:
    """All segments of an older version are sealed."""
    original = seal_planner._PlanningPass.plan_schema_change

    def plan_schema_change(self: Any, *args: Any) -> None:
        if all(segment.schema_version == 0 for segment in self._layout.segments):
            original(self, *args)

    patch.setattr(seal_planner._PlanningPass, "plan_schema_change", plan_schema_change)


@mutation
def all_segments_are_sealed_at_once(patch: Patch) -> None:
    """Only a few segments are sealed at a time for a new schema."""
    patch.setattr(schema_rollout, "SCHEMA_SHARE", 1)


@mutation
def the_layout_forgets_versions_that_segments_have(patch: Patch) -> None:
    """A version stays in the layout as long as one of its segments has it."""
    patch.setattr(layout_transitions, "_needed_schemas", lambda schemas, segments: schemas[-1:])


@mutation
def batches_are_sent_as_they_were_encoded(patch: Patch) -> None:
    """A batch is re-shaped before it goes to a segment of a newer version."""
    patch.setattr(SimulatedProducer, "reshape", lambda self, sub_batch, segment: sub_batch)


@mutation
def newer_batches_go_to_older_segments(patch: Patch) -> None:
    """A batch of a newer version waits for the successors, and a segment refuses it."""
    patch.setattr(SimulatedSubBatch, "fits", lambda self, segment: True)
    patch.setattr(SimulatedProducer, "reshape", lambda self, sub_batch, segment: sub_batch)
    patch.setattr(SimulatedProducerStream, "_check_columns", lambda self, batch: None)


@mutation
def a_new_version_enters_without_a_seal(patch: Patch) -> None:
    """Segments of the old version are sealed in the same PUT in which a version enters the layout."""
    patch.setattr(seal_planner._PlanningPass, "plan_schema_change", lambda self, *args: None)
