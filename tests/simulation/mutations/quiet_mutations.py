"""Mutations of the stretched flush interval, which the simulation must detect. As ``protocol_mutations``."""

from __future__ import annotations

from simulation.mutations.mutation_table import MutationTable, Patch
from smq_core.replica import segment_replica
from smq_core.replica.segment_replica import SegmentReplica
from support.sim.engine.world import SECOND

MUTATIONS = MutationTable()
mutation = MUTATIONS.add


@mutation
def stretch_the_interval_without_an_end(patch: Patch) -> None:
    """A tail is written at the longest interval, however small it is."""
    patch.setattr(segment_replica, "flush_interval", lambda *_: 3600 * SECOND)


@mutation
def requests_wait_like_everything_else(patch: Patch) -> None:
    """A chunk that is requested, because memory or credit is short, does not wait."""
    original = SegmentReplica.next_chunk
    patch.setattr(SegmentReplica, "next_chunk", lambda self, now, *, force=False: original(self, now))
