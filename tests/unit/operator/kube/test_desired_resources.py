"""What is written to the API server for a topic, and above all what is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from smq_core.model.decision import Decision, DecisionAction
from smq_core.model.entities import Column, Durability, Reason, TopicSchema, TopicSpec
from smq_core.model.loss import Loss
from smq_operator.kube.client.kinds import TOPICS, Resource
from smq_operator.kube.status.diff import Create, Delete, PatchMetadata, PatchStatus, compute_writes
from smq_operator.kube.status.resource_snapshot import MAX_SEALED_RESOURCES
from smq_operator.status.health import AffectedReplica, HealthIssues
from smq_operator.status.topic_conditions import MAX_MESSAGE_LENGTH
from support.kube.api_server import CRDS
from support.kube.resources_in_memory import NOW, FakeResources, finished, new_layout, snapshot, split

NAME = "flights-0-16-0"


@pytest.fixture
def resources() -> FakeResources:
    """One open segment, shown."""
    made = FakeResources()
    made.apply_until_stable(snapshot(new_layout()))
    return made


def condition(resource: Resource, type_: str) -> Resource:
    return next(c for c in resource["status"]["conditions"] if c["type"] == type_)


def test_an_open_segment_is_shown_with_where_and_why(resources: FakeResources) -> None:
    shown = resources.segments[NAME]
    assert shown["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "seaweedmq.io/v1alpha1",
            "kind": "Topic",
            "name": "flights",
            "uid": resources.topic["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": False,
        }
    ]
    assert shown["spec"]["range"] == "0-16"
    assert [r["broker"] for r in shown["spec"]["replicas"]] == ["b0", "b1"]
    assert shown["status"] == {
        "phase": "Open",
        "openedBecause": "Create",
        "brokers": ["b0", "b1"],
        "openedAt": "2023-11-14T22:13:20Z",
    }


def test_an_open_segment_says_nothing_of_its_messages(resources: FakeResources) -> None:
    """They change all the time; the API server is not the place for it."""
    assert not {"endOffset", "bytes"} & resources.segments[NAME]["status"].keys()


def test_a_new_topic_counts_and_is_ready(resources: FakeResources) -> None:
    status = resources.topic["status"]
    assert status["segments"] == {"pending": 0, "open": 1, "sealing": 0, "sealed": 0}
    assert (status["brokers"], status["observedGeneration"]) == (2, 1)
    reported = {c["type"]: c["status"] for c in status["conditions"]}
    assert reported == {
        "Ready": "True",
        "FilerAvailable": "True",
        "Balanced": "True",
        "HotPartition": "False",
        "DataLoss": "False",
        "SealBlocked": "False",
    }


def test_the_versions_of_a_schema_are_shown(resources: FakeResources) -> None:
    old = new_layout()
    first, second = (TopicSchema(version, (Column("a", f"int{8 << version}"),)) for version in range(2))
    planned = split(replace(old, schemas=(first,)), NAME)
    evolved = replace(
        planned,
        schemas=(first, second),
        segments=tuple(replace(s, schema_version=int(not s.successors)) for s in planned.segments),
    )
    resources.apply_until_stable(snapshot(evolved))
    assert resources.topic["status"]["schemaVersion"] == 1
    shown = {name: segment["status"]["schemaVersion"] for name, segment in resources.segments.items()}
    assert shown == {NAME: 0, "flights-0-8-1": 1, "flights-8-16-2": 1}
    resources.apply_until_stable(snapshot(*finished(evolved)))
    assert (
        resources.segments[NAME]["status"] | {"phase": "Sealed", "schemaVersion": 0}
        == resources.segments[NAME]["status"]
    )


def test_a_split_is_shown_step_by_step(resources: FakeResources) -> None:
    planned = split(new_layout(), NAME)
    resources.apply_until_stable(snapshot(planned))
    assert resources.segments[NAME]["status"]["phase"] == "Sealing"
    assert resources.segments[NAME]["status"]["successors"] == ["flights-0-8-1", "flights-8-16-2"]
    assert resources.segments["flights-0-8-1"]["status"]["phase"] == "Pending"
    assert resources.segments["flights-0-8-1"]["spec"]["predecessors"] == [NAME]
    after, sealed = finished(planned)
    resources.apply_until_stable(snapshot(after, sealed))
    old = resources.segments[NAME]
    assert (old["status"]["phase"], old["status"]["endOffset"], old["status"]["sealedBecause"]) == (
        "Sealed",
        100,
        "Split",
    )
    assert "brokers" not in old["status"], "nobody holds its tail any more"
    assert [r["broker"] for r in old["spec"]["replicas"]] == ["b0", "b1"], "it names the brokers"
    assert resources.topic["status"]["segments"] == {"pending": 0, "open": 2, "sealing": 0, "sealed": 1}


def test_nothing_is_written_when_nothing_changes(resources: FakeResources) -> None:
    for later in (0, 1, 3600):
        assert not compute_writes(snapshot(new_layout()), resources.topic, resources.segments, NOW + later * 1_000_000)


def test_a_deleted_segment_comes_back(resources: FakeResources) -> None:
    before = resources.segments.pop(NAME)
    (write,) = resources.apply_until_stable(snapshot(new_layout()))
    assert isinstance(write, Create)
    assert resources.segments[NAME]["spec"] == before["spec"]


def test_a_sealed_segment_comes_back_without_what_is_no_more_known(resources: FakeResources) -> None:
    after, sealed = finished(split(new_layout(), NAME))
    resources.apply_until_stable(snapshot(after, sealed))
    del resources.segments[NAME]
    resources.apply_until_stable(snapshot(after, sealed))
    assert resources.segments[NAME]["spec"]["replicas"] == []
    assert resources.segments[NAME]["status"]["endOffset"] == 100


@pytest.mark.parametrize(
    "edit",
    [
        {"phase": "Sealed"},
        {"brokers": ["x"]},
        {"endOffset": 5},
        {"lost": {"start": 1, "stop": 2}},
        {"openedAt": "2020-01-01T00:00:00Z"},
    ],
    ids=str,
)
def test_an_edited_status_of_a_segment_is_put_back(resources: FakeResources, edit: Resource) -> None:
    before = dict(resources.segments[NAME]["status"])
    resources.segments[NAME]["status"] |= edit
    assert len(resources.apply_until_stable(snapshot(new_layout()))) == 1
    assert resources.segments[NAME]["status"] == before


@pytest.mark.parametrize(
    "edit", [{"brokers": 9}, {"segments": {"open": 7, "other": 1}}, {"conditions": []}, {"observedGeneration": 9}]
)
def test_an_edited_status_of_a_topic_is_put_back(resources: FakeResources, edit: Resource) -> None:
    before = dict(resources.topic["status"])
    resources.topic["status"] |= edit
    (write,) = resources.apply_until_stable(snapshot(new_layout()))
    assert isinstance(write, PatchStatus) and write.kind is TOPICS
    assert resources.topic["status"] == before


def test_a_segment_that_lost_its_owner_gets_it_back(resources: FakeResources) -> None:
    before = resources.segments[NAME]["metadata"].pop("ownerReferences")
    (write,) = resources.apply_until_stable(snapshot(new_layout()))
    assert isinstance(write, PatchMetadata)
    assert resources.segments[NAME]["metadata"]["ownerReferences"] == before


def test_a_segment_resource_of_an_earlier_topic_is_replaced(resources: FakeResources) -> None:
    """A Topic that is made again counts its segments from 0 again, while the garbage collector is on its way."""
    resources.segments[NAME]["metadata"]["ownerReferences"][0]["uid"] = "an-earlier-one"
    resources.apply_until_stable(snapshot(new_layout()))
    assert resources.segments[NAME]["metadata"]["ownerReferences"][0]["uid"] == resources.topic["metadata"]["uid"]
    assert resources.made == 2


def test_a_segment_that_is_on_its_way_out_is_waited_for(resources: FakeResources) -> None:
    resources.segments[NAME]["metadata"]["deletionTimestamp"] = "2023-11-14T22:13:20Z"
    assert not compute_writes(snapshot(new_layout()), resources.topic, resources.segments, NOW)


def test_another_spec_is_replaced_as_a_whole(resources: FakeResources) -> None:
    resources.segments[NAME]["spec"] |= {"durability": "Stored"}
    first = resources.apply_until_stable(snapshot(new_layout()))
    assert [type(write) for write in first] == [Delete]
    assert resources.segments[NAME]["spec"]["durability"] == "Replicated"


def test_a_field_that_the_definition_does_not_have_is_no_difference(resources: FakeResources) -> None:
    del resources.segments[NAME]["spec"]["predecessors"]
    assert not compute_writes(snapshot(new_layout()), resources.topic, resources.segments, NOW)


def test_a_segment_that_the_topic_does_not_have_is_removed(resources: FakeResources) -> None:
    made_up = {
        "apiVersion": TOPICS.api_version,
        "kind": "Segment",
        "metadata": {"name": "flights-0-16-99", "namespace": "x"},
    }
    resources.segments["flights-0-16-99"] = made_up
    (write,) = resources.apply_until_stable(snapshot(new_layout()))
    assert isinstance(write, Delete)
    assert list(resources.segments) == [NAME]


def test_what_others_add_stays(resources: FakeResources) -> None:
    mine = {"type": "MyOwn", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "t"}
    resources.topic["status"]["conditions"].append(mine)
    resources.segments[NAME]["status"]["conditions"] = [mine]
    resources.segments[NAME]["metadata"]["labels"] = {"team": "a"}
    resources.segments[NAME]["metadata"]["annotations"] = {"example.org/note": "b"}
    assert not compute_writes(snapshot(new_layout()), resources.topic, resources.segments, NOW)
    after, sealed = finished(split(new_layout(), NAME))
    resources.apply_until_stable(snapshot(after, sealed))
    assert condition(resources.topic, "MyOwn") == mine
    assert resources.segments[NAME]["status"]["conditions"] == [mine]
    assert resources.segments[NAME]["metadata"]["labels"] == {"team": "a"}


def test_only_the_newest_sealed_segments_are_shown() -> None:
    layout, sealed = new_layout(), []
    for _ in range(MAX_SEALED_RESOURCES + 20):
        open_ = next(s for s in layout.segments if s.range.start == 0)
        planned = split(layout, open_.name) if len(open_.range) > 1 else None
        if planned is None:
            break
        layout, more = finished(planned)
        sealed += more
    many = [
        replace(sealed[0], name=f"flights-0-16-{n}", number=n) for n in range(1000, 1000 + MAX_SEALED_RESOURCES + 5)
    ]
    newest = tuple(sorted(many, key=lambda e: -e.number))[:MAX_SEALED_RESOURCES]
    resources = FakeResources()
    resources.apply_until_stable(snapshot(layout, newest, sealed_count=len(many)))
    shown = [s for s in resources.segments.values() if s["status"]["phase"] == "Sealed"]
    assert len(shown) == MAX_SEALED_RESOURCES
    assert resources.topic["status"]["segments"]["sealed"] == len(many)
    one_more = replace(sealed[0], name="flights-0-16-5000", number=5000)
    first = resources.apply_until_stable(snapshot(layout, (one_more, *newest[:-1]), sealed_count=len(many) + 1))
    assert sorted(type(write).__name__ for write in first) == ["Create", "Delete", "PatchStatus"]


def test_while_the_layout_is_not_known_segments_stay(resources: FakeResources) -> None:
    resources.apply_until_stable(
        snapshot(None, layout_read=False, waiting_reason="the filer does not answer", generation=None)
    )
    assert list(resources.segments) == [NAME]
    ready = condition(resources.topic, "Ready")
    assert (ready["status"], ready["reason"]) == ("Unknown", "LayoutUnknown")
    assert "the filer does not answer" in ready["message"]
    assert resources.topic["status"]["segments"]["open"] == 1


def test_a_topic_that_never_was_ready_says_what_it_waits_for() -> None:
    resources = FakeResources()
    resources.apply_until_stable(snapshot(None))
    assert condition(resources.topic, "Ready")["status"] == "False"
    assert "check that the brokers are ready" in condition(resources.topic, "Ready")["message"]
    resources.apply_until_stable(snapshot(None, waiting_reason="access denied"))
    assert "access denied" in condition(resources.topic, "Ready")["message"]


def test_a_condition_is_as_old_as_its_status(resources: FakeResources) -> None:
    then = condition(resources.topic, "Ready")["lastTransitionTime"]
    unavailable = snapshot(new_layout(), issues=HealthIssues(unavailable=(AffectedReplica(NAME, "b1"),)))
    resources.apply_until_stable(unavailable, NOW + 60_000_000)
    gone = condition(resources.topic, "Ready")
    assert (gone["status"], gone["reason"]) == ("False", "BrokerUnavailable")
    assert "broker b1" in gone["message"] and gone["lastTransitionTime"] > then
    more = snapshot(
        new_layout(), issues=HealthIssues(unavailable=(AffectedReplica(NAME, "b0"), AffectedReplica(NAME, "b1")))
    )
    resources.apply_until_stable(more, NOW + 120_000_000)
    assert condition(resources.topic, "Ready")["message"] != gone["message"]
    assert condition(resources.topic, "Ready")["lastTransitionTime"] == gone["lastTransitionTime"]
    resources.apply_until_stable(snapshot(new_layout()), NOW + 180_000_000)
    assert condition(resources.topic, "Ready")["lastTransitionTime"] > gone["lastTransitionTime"]


def test_health_issues_are_reported_with_what_to_do(resources: FakeResources) -> None:
    issues = HealthIssues(hot=((NAME, 3),), blocked=((NAME, ("b0", "b1")),), draining=(AffectedReplica(NAME, "b0"),))
    lost = replace(finished(split(new_layout(), NAME))[1][0], lost=Loss(10, 20))
    more = {"lost": (lost,), "rejection": "partitions cannot change", "paused": True, "unread_by": ("report",)}
    resources.apply_until_stable(snapshot(new_layout(), issues=issues, **more))
    reported = {c["type"]: c for c in resources.topic["status"]["conditions"]}
    assert "partition 3" in reported["HotPartition"]["message"]
    assert f"kubectl annotate segment {NAME} seaweedmq.io/accept-loss=true" in reported["SealBlocked"]["message"]
    assert "offsets 10 to 20" in reported["DataLoss"]["message"]
    assert reported["Balanced"]["reason"] == "Draining"
    assert reported["SpecRejected"]["message"] == "partitions cannot change"
    assert "seaweedmq.io/autoscaling" in reported["AutoscalingPaused"]["message"]
    assert "(report)" in reported["RetentionBlocked"]["message"]
    assert reported["Ready"]["reason"] == "SealBlocked"
    blocked = condition(resources.segments[NAME], "SealBlocked")
    assert (blocked["status"], "b0, b1" in blocked["message"]) == ("True", True)
    resources.apply_until_stable(snapshot(new_layout()))
    reported = {c["type"]: c["status"] for c in resources.topic["status"]["conditions"]}
    assert reported["SpecRejected"] == reported["AutoscalingPaused"] == reported["SealBlocked"] == "False"
    assert condition(resources.segments[NAME], "SealBlocked")["status"] == "False"


def test_too_few_brokers_are_reported(resources: FakeResources) -> None:
    layout = new_layout(brokers=("b0",))
    resources.apply_until_stable(snapshot(layout, spec=TopicSpec(partitions=16, replicas=3)))
    assert condition(resources.topic, "Balanced")["reason"] == "TooFewBrokers"
    stored = replace(layout, segments=(replace(layout.segments[0], durability=Durability.STORED),))
    resources.apply_until_stable(snapshot(stored))
    assert condition(resources.topic, "Balanced")["reason"] == "DurabilityDegraded"


def test_a_message_has_an_end(resources: FakeResources) -> None:
    resources.apply_until_stable(snapshot(new_layout(), rejection="x" * 40_000))
    assert len(condition(resources.topic, "SpecRejected")["message"]) == MAX_MESSAGE_LENGTH


def test_the_last_decision_stays_when_the_next_leader_knows_none(resources: FakeResources) -> None:
    decision = Decision(
        at=NOW, topic="travel/flights", action=DecisionAction.SCALE_OUT, segments=(NAME,), reason="2.0 times the target"
    )
    resources.apply_until_stable(snapshot(new_layout(), decision=decision))
    reported = {
        "time": "2023-11-14T22:13:20Z",
        "action": "ScaleOut",
        "segments": [NAME],
        "reason": "2.0 times the target",
    }
    assert resources.topic["status"]["lastDecision"] == reported
    assert not compute_writes(snapshot(new_layout()), resources.topic, resources.segments, NOW)


def test_every_reason_is_one_that_the_definition_has() -> None:
    crd = yaml.safe_load((CRDS / "segments.yaml").read_text())
    status = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    assert set(status["openedBecause"]["enum"]) == {reason.value for reason in Reason}


def test_a_segment_says_what_it_lost_and_whether_that_may_be_more(resources: FakeResources) -> None:
    after, (sealed, *_) = finished(split(new_layout(), NAME))
    sealed = replace(sealed, lost=Loss(100, 120))
    resources.apply_until_stable(snapshot(after, [sealed]))
    assert resources.segments[NAME]["status"]["lost"] == {"start": 100, "stop": 120}
    sealed = replace(sealed, lost=Loss(100, 130, at_least=True))
    resources.apply_until_stable(snapshot(after, [sealed]))
    assert resources.segments[NAME]["status"]["lost"] == {"start": 100, "stop": 130, "atLeast": True}
