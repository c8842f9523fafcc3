"""Whatever the API server shows, the writes make it what it shall be, and then there is nothing more to write."""

from __future__ import annotations

import re
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from smq_core.model.entities import Layout, Reason, SealedSegment, segment_name
from smq_core.model.keyspace import KeyRange
from smq_operator.kube.client.kinds import Resource
from smq_operator.kube.status.resource_snapshot import ResourceSnapshot
from smq_operator.status.health import AffectedReplica, HealthIssues
from support.kube.resources_in_memory import NOW, FakeResources, finished, new_layout, snapshot, split

History = tuple[Layout, list[SealedSegment]]
LABEL = re.compile(r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")


@st.composite
def states(draw: st.DrawFn) -> ResourceSnapshot:
    """A topic somewhere in its life."""
    layout, sealed = new_layout(draw(st.integers(1, 3))), list[SealedSegment]()
    for _ in range(draw(st.integers(0, 6))):
        can = [s.name for s in layout.segments if not s.successors and len(s.range) > 1]
        if can and draw(st.booleans()):
            layout = split(layout, draw(st.sampled_from(can)), draw(st.sampled_from(list(Reason))))
        else:
            layout, more = finished(layout) if any(s.successors for s in layout.segments) else (layout, [])
            sealed += more
    names = [s.name for s in layout.segments]
    issues = HealthIssues(
        unavailable=tuple(
            AffectedReplica(name, "b1") for name in draw(st.lists(st.sampled_from(names), max_size=2, unique=True))
        ),
        blocked=tuple((n, ("b0",)) for n in draw(st.lists(st.sampled_from(names), max_size=2, unique=True))),
    )
    known = draw(st.booleans())
    rejection = draw(st.none() | st.text(max_size=20))
    return snapshot(layout if known else None, sealed, issues=issues, rejection=rejection, paused=draw(st.booleans()))


def _delete(resources: FakeResources, name: str) -> None:
    del resources.segments[name]


def _edit_status(resources: FakeResources, name: str) -> None:
    resources.segments[name]["status"] = {"phase": "Open", "endOffset": 1, "conditions": [{"type": "Mine"}]}


def _no_status(resources: FakeResources, name: str) -> None:
    resources.segments[name].pop("status", None)


def _no_owner(resources: FakeResources, name: str) -> None:
    resources.segments[name]["metadata"].pop("ownerReferences", None)


def _other_owner(resources: FakeResources, name: str) -> None:
    owner = {"uid": "another", "controller": True, "kind": "Topic", "name": "flights"}
    resources.segments[name]["metadata"]["ownerReferences"] = [owner]


def _edit_spec(resources: FakeResources, name: str) -> None:
    resources.segments[name]["spec"] = {"topic": "flights", "number": 10**9}


def _forge(resources: FakeResources, name: str) -> None:
    forged: Resource = {"metadata": {"name": f"{name}9", "namespace": "travel", "uid": "x"}, "spec": {}}
    resources.segments[f"{name}9"] = forged


def _edit_topic(resources: FakeResources, name: str) -> None:
    resources.topic["status"] = {
        "brokers": 77,
        "conditions": [{"type": "Ready", "status": "Unknown"}, {"type": "Mine"}],
    }


DRIFTS: list[Callable[[FakeResources, str], None]] = [
    *(_delete, _edit_status, _no_status, _no_owner, _other_owner, _edit_spec, _forge, _edit_topic),
]


@settings(max_examples=150, deadline=None)
@given(states(), states(), st.data())
def test_resources_converge_to_the_desired_ones(
    before: ResourceSnapshot, after: ResourceSnapshot, data: st.DataObject
) -> None:
    resources = FakeResources()
    resources.apply_until_stable(before)
    for _ in range(data.draw(st.integers(0, 4))):
        if resources.segments:
            drift = data.draw(st.sampled_from(DRIFTS))
            drift(resources, data.draw(st.sampled_from(sorted(resources.segments))))
    resources.apply_until_stable(after, NOW + 5_000_000)
    if after.topic.layout is None:
        return
    wanted = {s.name for s in after.topic.layout.segments} | {entry.name for entry in after.sealed}
    assert set(resources.segments) == wanted
    for segment in after.topic.layout.segments:
        shown = resources.segments[segment.name]
        assert shown["status"]["phase"] == segment.phase.value.capitalize()
        assert [r["broker"] for r in shown["spec"]["replicas"]] == shown["status"]["brokers"]
        assert [owner["uid"] for owner in shown["metadata"]["ownerReferences"]] == [after.uid]
    fresh = FakeResources()
    fresh.apply_until_stable(after, NOW + 5_000_000)
    assert resources.topic["status"]["segments"] == fresh.topic["status"]["segments"]
    verdicts = [{c["type"]: c.get("status") for c in s.topic["status"]["conditions"]} for s in (resources, fresh)]
    assert verdicts[1].items() <= verdicts[0].items()


labels = st.from_regex(LABEL, fullmatch=True)
ranges = st.tuples(st.integers(0, 65_535), st.integers(1, 65_536)).filter(lambda r: r[0] < r[1])


@given(labels | st.sampled_from(["a", "a-0", "a-0-16", "a-0-16-0", "a-1-2-3-4"]), ranges, st.integers(0, 10**15))
def test_a_segment_name_contains_topic_range_and_number(topic: str, range_: tuple[int, int], number: int) -> None:
    """So two topics of a namespace never have Segments of one name, whatever they are called."""
    name = segment_name(f"travel/{topic}", KeyRange(*range_), number)
    short, start, stop, count = name.rsplit("-", 3)
    assert (short, int(start), int(stop), int(count)) == (topic, *range_, number)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name) and len(name) <= 253
