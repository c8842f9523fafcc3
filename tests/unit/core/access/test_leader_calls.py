from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from smq_core.access.leader_calls import LEADER_CALLS, CallSubject, list_namespace
from smq_core.access.rights import Access
from smq_core.model.names import full_topic_name

ROOT = Path(__file__).parents[4]
SUBJECT = CallSubject(topic="travel/flights", group="team.x", incarnation="i1")

EITHER = (
    ('create topics/produce "flights" in namespace "travel"', 'create topics/consume "flights" in namespace "travel"'),
)
PRODUCE, CONSUME, ADMINISTER = (
    ((f'create topics/{right} "flights" in namespace "travel"',),) for right in ("produce", "consume", "administer")
)
GROUP = (
    *CONSUME,
    tuple(f'create groups/consume "{name}" in namespace "travel"' for name in ("team.x", "team.*", "*")),
)
LIST_ALL = (("list topics",),)
LIST_BROKERS, UPDATE_BROKERS = (("list brokers",),), (("update brokers",),)

NEEDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "Topics.Locate": EITHER,
    "Topics.Watch": EITHER,
    "Topics.History": EITHER,
    "Topics.ReportUnreachable": (),
    "Topics.SignUploads": PRODUCE,
    "Topics.SignReads": CONSUME,
    "Topics.ListFiles": CONSUME,
    "Topics.GetFilerKeys": CONSUME,
    "Groups.JoinGroup": GROUP,
    "Groups.LeaveGroup": GROUP,
    "Groups.CommitPositions": GROUP,
    "Groups.GetPositions": GROUP,
    "Groups.SetPositions": ADMINISTER,
    "Groups.DeleteGroup": ADMINISTER,
    "Groups.ListGroups": CONSUME,
    "Publishes.ClaimApp": PRODUCE,
    "Publishes.PublishAtomically": PRODUCE,
    "Admin.ApplyTopic": (('update topics "flights" in namespace "travel"',),),
    "Admin.AlterTopic": (('update topics "flights" in namespace "travel"',),),
    "Admin.ExportTopic": (('get topics "flights" in namespace "travel"',),),
    "Admin.DeleteTopic": (('delete topics "flights" in namespace "travel"',),),
    "Admin.PauseScaling": ADMINISTER,
    "Admin.ListTopics": LIST_ALL,
    "Admin.ListPins": ADMINISTER,
    "Admin.TrimTopic": ADMINISTER,
    "Admin.RecoverTopic": ADMINISTER,
    "Admin.ReadStory": ADMINISTER,
    "Admin.ListDecisions": LIST_ALL,
    "Admin.ChangeSegments": ADMINISTER,
    "Admin.AcceptLoss": ADMINISTER,
    "Admin.ListBrokers": LIST_BROKERS,
    "Admin.DrainBroker": UPDATE_BROKERS,
    "Admin.UndrainBroker": UPDATE_BROKERS,
    "Brokers.Report": (),
    "Auth.Login": (),
    "Auth.GetGrants": (),
    "Auth.WhoAmI": (),
    "Auth.CheckAccess": (),
    "Auth.ListAuthorities": LIST_BROKERS,
    "Auth.RotateAuthority": UPDATE_BROKERS,
}


def defined_calls() -> set[str]:
    found = set()
    for path in (ROOT / "proto/smq/v1").glob("*.proto"):
        module = importlib.import_module(f"smq_proto.v1.{path.stem}_pb2")
        for service in module.DESCRIPTOR.services_by_name.values():
            found |= {f"{service.name}.{method.name}" for method in service.methods}
    return found


def test_the_table_has_every_call_of_every_service_and_no_other() -> None:
    assert set(LEADER_CALLS) == defined_calls() == set(NEEDS)


@pytest.mark.parametrize("call", NEEDS)
def test_each_call_needs_these_rights(call: str) -> None:
    needs = LEADER_CALLS[call].needs(SUBJECT)
    assert tuple(tuple(map(str, alternatives)) for alternatives in needs.all_of) == NEEDS[call]


def test_a_report_is_that_of_its_own_broker() -> None:
    named = {call: entry.needs(SUBJECT).incarnation for call, entry in LEADER_CALLS.items()}
    assert {call: it for call, it in named.items() if it is not None} == {"Brokers.Report": "i1"}


def test_brokers_may_do_little_else() -> None:
    assert {call for call, entry in LEADER_CALLS.items() if entry.needs(SUBJECT).brokers_too} == {
        "Admin.ListBrokers",
        "Topics.ReportUnreachable",
        *(f"Auth.{call}" for call in ("Login", "GetGrants", "WhoAmI", "CheckAccess")),
    }


def test_only_lists_of_topics_are_shown_in_part() -> None:
    assert {call for call, it in LEADER_CALLS.items() if it.needs(SUBJECT).lists_namespaces} == {"Admin.ListTopics"}
    assert str(list_namespace("travel")) == 'list topics in namespace "travel"'


def test_a_manifest_of_a_new_topic_creates_it() -> None:
    (need,) = LEADER_CALLS["Admin.ApplyTopic"].needs(CallSubject(topic="t", topic_exists=False)).all_of
    assert need == (Access(verb="create", resource="topics", namespace="default", name="t"),)


@pytest.mark.parametrize("topic", ["t", "a/t"])
def test_a_bare_name_is_the_same_topic_as_in_the_handlers(topic: str) -> None:
    assert CallSubject(topic=topic).full_topic == full_topic_name(topic)


def test_calls_that_change_something_or_give_keys_are_audited() -> None:
    assert {call for call, entry in LEADER_CALLS.items() if entry.is_audited} == {
        *("Groups.SetPositions", "Groups.DeleteGroup", "Auth.Login", "Auth.RotateAuthority", "Topics.GetFilerKeys"),
        *(
            f"Admin.{call}"
            for call in (
                *("ApplyTopic", "AlterTopic", "DeleteTopic", "PauseScaling", "TrimTopic", "RecoverTopic"),
                *("ChangeSegments", "AcceptLoss", "DrainBroker", "UndrainBroker"),
            )
        ),
    }
