"""The models of other systems follow the rules in their docstrings. Pictures are well-formed and show the changes."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks.elastic import picture
from benchmarks.elastic.model import Environment, Model, spec_for
from benchmarks.elastic.peer_models import Pravega, Pulsar, run
from benchmarks.elastic.record import Record
from benchmarks.elastic.shapes import Shape, make

EVEN = np.full(1024, 1 / 1024)


def constant_load(targets: float, seconds: int) -> Shape:
    return Shape("steady", "", seconds, 1024, 1_000.0, lambda t: EVEN * 1_000.0 * targets)


@pytest.mark.parametrize(("factor", "parts"), [(2, 2), (16, 6)])
def test_pravega_waits_ten_minutes_and_cuts_as_the_factor_allows(factor: int, parts: int) -> None:
    record = run("Pravega", Pravega(1_000.0, factor), constant_load(6.2, 1_000))
    first = record.events[0]
    assert 600 < first.second <= 600 + 121
    assert (first.action, first.parts) == ("split", parts)


def test_pravega_never_joins_what_is_above_half_the_target() -> None:
    shape = constant_load(0, 6_000)
    shape = replace(shape, at=lambda t: EVEN * (4_000.0 if t < 1_500 else 2_400.0))
    record = run("Pravega", Pravega(1_000.0, 4), shape)
    assert record.samples[-1].segments == 4 and not record.changes("merge")
    quiet = replace(shape, at=lambda t: EVEN * (4_000.0 if t < 1_500 else 800.0))
    assert run("Pravega", Pravega(1_000.0, 4), quiet).changes("merge")


def test_pulsar_splits_in_half_after_four_checks_and_never_merges() -> None:
    shape = constant_load(0, 3_000)
    shape = replace(shape, at=lambda t: EVEN * (6_000.0 if t < 1_000 else 10.0))
    record = run("Pulsar", Pulsar(1_000.0, 1024, 8, 3_000.0), shape)
    assert record.changes("split")[0].second == 240
    assert record.samples[-1].segments == max(s.segments for s in record.samples) > 6


def element_count(svg: str, name: str) -> int:
    return len(ElementTree.fromstring(svg).findall(f".//{{http://www.w3.org/2000/svg}}{name}"))


def test_a_picture_is_well_formed_and_small(seed: int) -> None:
    shape = make("flood", seed=seed)
    record: Record = Model(shape, Environment(spec_for(shape)), seed).run(200)
    svg = picture.draw(record, "a < b & c", "what")
    assert element_count(svg, "polyline") == 4
    assert len(svg) < 60_000
    peers = [record, run("Pravega", Pravega(shape.target, 2), shape)]
    assert element_count(picture.side_by_side(peers, "t", "s", 0, 200), "polyline") == 2
