"""What is written to the API server for a topic, and above all what is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from smq_core.decide import Decision
from smq_core.model import Durability, Reason, TopicSpec
from smq_operator.kube.conditions import LONGEST
from smq_operator.kube.facts import SHOWN_SEALED, Place, Trouble
from smq_operator.kube.kinds import TOPICS, Resource
from smq_operator.kube.projection import Create, Delete, PatchMetadata, PatchStatus, writes
from support.api_server import CRDS
from support.projected import NOW, Shelf, facts, finished, new_layout, split

NAME = "flights-0-16-0"


@pytest.fixture
def shelf() -> Shelf:
    """One open segment, shown."""
    made = Shelf()
    made.settle(facts(new_layout()))
    return made


def condition(resource: Resource, type_: str) -> Resource:
    return next(c for c in resource["status"]["conditions"] if c["type"] == type_)


def test_an_open_segment_is_shown_with_where_and_why(shelf: Shelf) -> None:
    shown = shelf.segments[NAME]
    assert shown["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "seaweedmq.io/v1alpha1",
            "kind": "Topic",
            "name": "flights",
            "uid": shelf.topic["metadata"]["uid"],
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


def test_an_open_segment_says_nothing_of_its_messages(shelf: Shelf) -> None:
    """They change all the time; the API server is not the place for it."""
    assert not {"endOffset", "bytes"} & shelf.segments[NAME]["status"].keys()


def test_a_new_topic_counts_and_is_ready(shelf: Shelf) -> None:
    status = shelf.topic["status"]
    assert status["segments"] == {"pending": 0, "open": 1, "sealing": 0, "sealed": 0}
    assert (status["brokers"], status["observedGeneration"]) == (2, 1)
    told = {c["type"]: c["status"] for c in status["conditions"]}
    assert told == {
        "Ready": "True",
        "Balanced": "True",
        "HotPartition": "False",
        "DataLoss": "False",
        "SealBlocked": "False",
    }


def test_a_split_is_shown_step_by_step(shelf: Shelf) -> None:
    planned = split(new_layout(), NAME)
    shelf.settle(facts(planned))
    assert shelf.segments[NAME]["status"]["phase"] == "Sealing"
    assert shelf.segments[NAME]["status"]["successors"] == ["flights-0-8-1", "flights-8-16-2"]
    assert shelf.segments["flights-0-8-1"]["status"]["phase"] == "Pending"
    assert shelf.segments["flights-0-8-1"]["spec"]["predecessors"] == [NAME]
    after, sealed = finished(planned)
    shelf.settle(facts(after, sealed))
    old = shelf.segments[NAME]
    assert (old["status"]["phase"], old["status"]["endOffset"], old["status"]["sealedBecause"]) == (
        "Sealed",
        100,
        "Split",
    )
    assert "brokers" not in old["status"], "nobody holds its tail any more"
    assert [r["broker"] for r in old["spec"]["replicas"]] == ["b0", "b1"], "it tells who did"
    assert shelf.topic["status"]["segments"] == {"pending": 0, "open": 2, "sealing": 0, "sealed": 1}


def test_nothing_is_written_when_nothing_changes(shelf: Shelf) -> None:
    for later in (0, 1, 3600):
        assert not writes(facts(new_layout()), shelf.topic, shelf.segments, NOW + later * 1_000_000)


def test_a_deleted_segment_comes_back(shelf: Shelf) -> None:
    before = shelf.segments.pop(NAME)
    (write,) = shelf.settle(facts(new_layout()))
    assert isinstance(write, Create)
    assert shelf.segments[NAME]["spec"] == before["spec"]


def test_a_sealed_segment_comes_back_without_what_is_no_more_known(shelf: Shelf) -> None:
    after, sealed = finished(split(new_layout(), NAME))
    shelf.settle(facts(after, sealed))
    del shelf.segments[NAME]
    shelf.settle(facts(after, sealed))
    assert shelf.segments[NAME]["spec"]["replicas"] == []
    assert shelf.segments[NAME]["status"]["endOffset"] == 100


@pytest.mark.parametrize(
    "edit",
    [
        {"phase": "Sealed"},
        {"brokers": ["x"]},
        {"endOffset": 5},
        {"lost": {"from": 1, "to": 2}},
        {"openedAt": "2020-01-01T00:00:00Z"},
    ],
    ids=str,
)
def test_an_edited_status_of_a_segment_is_put_back(shelf: Shelf, edit: Resource) -> None:
    before = dict(shelf.segments[NAME]["status"])
    shelf.segments[NAME]["status"] |= edit
    assert len(shelf.settle(facts(new_layout()))) == 1
    assert shelf.segments[NAME]["status"] == before


@pytest.mark.parametrize(
    "edit", [{"brokers": 9}, {"segments": {"open": 7, "other": 1}}, {"conditions": []}, {"observedGeneration": 9}]
)
def test_an_edited_status_of_a_topic_is_put_back(shelf: Shelf, edit: Resource) -> None:
    before = dict(shelf.topic["status"])
    shelf.topic["status"] |= edit
    (write,) = shelf.settle(facts(new_layout()))
    assert isinstance(write, PatchStatus) and write.kind is TOPICS
    assert shelf.topic["status"] == before


def test_a_segment_that_lost_its_owner_gets_it_back(shelf: Shelf) -> None:
    before = shelf.segments[NAME]["metadata"].pop("ownerReferences")
    (write,) = shelf.settle(facts(new_layout()))
    assert isinstance(write, PatchMetadata)
    assert shelf.segments[NAME]["metadata"]["ownerReferences"] == before


def test_a_segment_of_an_earlier_topic_makes_room(shelf: Shelf) -> None:
    """A Topic that is made again counts its segments from 0 again, while the garbage collector is on its way."""
    shelf.segments[NAME]["metadata"]["ownerReferences"][0]["uid"] = "an-earlier-one"
    shelf.settle(facts(new_layout()))
    assert shelf.segments[NAME]["metadata"]["ownerReferences"][0]["uid"] == shelf.topic["metadata"]["uid"]
    assert shelf.made == 2


def test_a_segment_that_is_on_its_way_out_is_waited_for(shelf: Shelf) -> None:
    shelf.segments[NAME]["metadata"]["deletionTimestamp"] = "2023-11-14T22:13:20Z"
    assert not writes(facts(new_layout()), shelf.topic, shelf.segments, NOW)


def test_another_spec_is_replaced_as_a_whole(shelf: Shelf) -> None:
    shelf.segments[NAME]["spec"] |= {"durability": "Stored"}
    first = shelf.settle(facts(new_layout()))
    assert [type(write) for write in first] == [Delete]
    assert shelf.segments[NAME]["spec"]["durability"] == "Replicated"


def test_a_field_that_the_definition_does_not_have_is_no_difference(shelf: Shelf) -> None:
    del shelf.segments[NAME]["spec"]["predecessors"]
    assert not writes(facts(new_layout()), shelf.topic, shelf.segments, NOW)


def test_a_segment_that_the_topic_does_not_have_is_removed(shelf: Shelf) -> None:
    made_up = {"apiVersion": TOPICS.api, "kind": "Segment", "metadata": {"name": "flights-0-16-99", "namespace": "x"}}
    shelf.segments["flights-0-16-99"] = made_up
    (write,) = shelf.settle(facts(new_layout()))
    assert isinstance(write, Delete)
    assert list(shelf.segments) == [NAME]


def test_what_others_add_stays(shelf: Shelf) -> None:
    mine = {"type": "MyOwn", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "t"}
    shelf.topic["status"]["conditions"].append(mine)
    shelf.segments[NAME]["status"]["conditions"] = [mine]
    shelf.segments[NAME]["metadata"]["labels"] = {"team": "a"}
    shelf.segments[NAME]["metadata"]["annotations"] = {"example.org/note": "b"}
    assert not writes(facts(new_layout()), shelf.topic, shelf.segments, NOW)
    after, sealed = finished(split(new_layout(), NAME))
    shelf.settle(facts(after, sealed))
    assert condition(shelf.topic, "MyOwn") == mine
    assert shelf.segments[NAME]["status"]["conditions"] == [mine]
    assert shelf.segments[NAME]["metadata"]["labels"] == {"team": "a"}


def test_only_the_newest_sealed_segments_are_shown() -> None:
    layout, sealed = new_layout(), []
    for _ in range(SHOWN_SEALED + 20):
        open_ = next(s for s in layout.segments if s.range.start == 0)
        planned = split(layout, open_.name) if len(open_.range) > 1 else None
        if planned is None:
            break
        layout, more = finished(planned)
        sealed += more
    many = [replace(sealed[0], name=f"flights-0-16-{n}", number=n) for n in range(1000, 1000 + SHOWN_SEALED + 5)]
    newest = tuple(sorted(many, key=lambda e: -e.number))[:SHOWN_SEALED]
    shelf = Shelf()
    shelf.settle(facts(layout, newest, sealed_count=len(many)))
    shown = [s for s in shelf.segments.values() if s["status"]["phase"] == "Sealed"]
    assert len(shown) == SHOWN_SEALED
    assert shelf.topic["status"]["segments"]["sealed"] == len(many)
    one_more = replace(sealed[0], name="flights-0-16-5000", number=5000)
    first = shelf.settle(facts(layout, (one_more, *newest[:-1]), sealed_count=len(many) + 1))
    assert sorted(type(write).__name__ for write in first) == ["Create", "Delete", "PatchStatus"]


def test_while_the_layout_is_not_known_segments_stay(shelf: Shelf) -> None:
    shelf.settle(facts(None, waits_for="the filer does not answer", generation=None))
    assert list(shelf.segments) == [NAME]
    ready = condition(shelf.topic, "Ready")
    assert (ready["status"], ready["reason"]) == ("Unknown", "LayoutUnread")
    assert "the filer does not answer" in ready["message"]
    assert shelf.topic["status"]["segments"]["open"] == 1


def test_a_topic_that_never_was_ready_says_what_it_waits_for() -> None:
    shelf = Shelf()
    shelf.settle(facts(None))
    assert condition(shelf.topic, "Ready")["status"] == "False"
    assert "are the broker Pods ready?" in condition(shelf.topic, "Ready")["message"]
    shelf.settle(facts(None, waits_for="access denied"))
    assert "access denied" in condition(shelf.topic, "Ready")["message"]


def test_a_condition_is_as_old_as_its_status(shelf: Shelf) -> None:
    then = condition(shelf.topic, "Ready")["lastTransitionTime"]
    away = facts(new_layout(), trouble=Trouble(away=(Place(NAME, "b1"),)))
    shelf.settle(away, NOW + 60_000_000)
    gone = condition(shelf.topic, "Ready")
    assert (gone["status"], gone["reason"]) == ("False", "BrokerAway")
    assert "broker b1" in gone["message"] and gone["lastTransitionTime"] > then
    more = facts(new_layout(), trouble=Trouble(away=(Place(NAME, "b0"), Place(NAME, "b1"))))
    shelf.settle(more, NOW + 120_000_000)
    assert condition(shelf.topic, "Ready")["message"] != gone["message"]
    assert condition(shelf.topic, "Ready")["lastTransitionTime"] == gone["lastTransitionTime"]
    shelf.settle(facts(new_layout()), NOW + 180_000_000)
    assert condition(shelf.topic, "Ready")["lastTransitionTime"] > gone["lastTransitionTime"]


def test_trouble_is_told_with_what_to_do(shelf: Shelf) -> None:
    trouble = Trouble(hot=((NAME, 3),), blocked=((NAME, ("b0", "b1")),), draining=(Place(NAME, "b0"),))
    lost = replace(finished(split(new_layout(), NAME))[1][0], lost_from=10, lost_to=20)
    more = {"lost": (lost,), "refused": "partitions cannot change", "paused": True, "unread_by": ("report",)}
    shelf.settle(facts(new_layout(), trouble=trouble, **more))
    told = {c["type"]: c for c in shelf.topic["status"]["conditions"]}
    assert "partition 3" in told["HotPartition"]["message"]
    assert f"kubectl annotate segment {NAME} seaweedmq.io/accept-loss=true" in told["SealBlocked"]["message"]
    assert "offsets 10 to 20" in told["DataLoss"]["message"]
    assert told["Balanced"]["reason"] == "Draining"
    assert told["ManifestRefused"]["message"] == "partitions cannot change"
    assert "seaweedmq.io/autoscaling" in told["AutoscalingPaused"]["message"]
    assert "(report)" in told["RetentionHeld"]["message"]
    assert told["Ready"]["reason"] == "SealBlocked"
    blocked = condition(shelf.segments[NAME], "SealBlocked")
    assert (blocked["status"], "b0, b1" in blocked["message"]) == ("True", True)
    shelf.settle(facts(new_layout()))
    told = {c["type"]: c["status"] for c in shelf.topic["status"]["conditions"]}
    assert told["ManifestRefused"] == told["AutoscalingPaused"] == told["SealBlocked"] == "False"
    assert condition(shelf.segments[NAME], "SealBlocked")["status"] == "False"


def test_too_few_brokers_are_told(shelf: Shelf) -> None:
    layout = new_layout(brokers=("b0",))
    shelf.settle(facts(layout, spec=TopicSpec(partitions=16, replicas=3)))
    assert condition(shelf.topic, "Balanced")["reason"] == "FewBrokers"
    stored = replace(layout, segments=(replace(layout.segments[0], durability=Durability.STORED),))
    shelf.settle(facts(stored))
    assert condition(shelf.topic, "Balanced")["reason"] == "StoredInstead"


def test_a_message_has_an_end(shelf: Shelf) -> None:
    shelf.settle(facts(new_layout(), refused="x" * 40_000))
    assert len(condition(shelf.topic, "ManifestRefused")["message"]) == LONGEST


def test_the_last_decision_stays_when_the_next_leader_knows_none(shelf: Shelf) -> None:
    decision = Decision(NOW, "travel/flights", "scale out", (NAME,), "2.0 times the target")
    shelf.settle(facts(new_layout(), decision=decision))
    told = {
        "time": "2023-11-14T22:13:20Z",
        "action": "ScaleOut",
        "segments": [NAME],
        "reason": "2.0 times the target",
    }
    assert shelf.topic["status"]["lastDecision"] == told
    assert not writes(facts(new_layout()), shelf.topic, shelf.segments, NOW)


def test_every_reason_is_one_that_the_definition_has() -> None:
    crd = yaml.safe_load((CRDS / "segments.yaml").read_text())
    status = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    assert set(status["openedBecause"]["enum"]) == {reason.value for reason in Reason}
