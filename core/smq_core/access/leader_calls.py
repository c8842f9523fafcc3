"""What each call of the leader's API needs. A call that is not in the table is denied.

The table is complete: a test compares it with the definitions of all services.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from smq_core.access.rights import (
    TOPICS,
    Access,
    Right,
    broker_verb,
    group_rights,
    topic_right,
    topic_verb,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSubject:
    """What a request is about; a field that it lacks is empty.

    ``topic`` may be a bare name. ``topic_exists`` matters to a manifest, which creates a topic or changes it.
    """

    topic: str = ""
    topic_exists: bool = True
    group: str = ""
    incarnation: str = ""

    @property
    def full_topic(self) -> str:
        """``namespace/name``; a bare name is in the namespace ``default``."""
        return self.topic if "/" in self.topic else f"default/{self.topic}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallNeeds:
    """What a caller needs: of each entry of ``all_of`` at least one access."""

    all_of: tuple[tuple[Access, ...], ...] = ()
    incarnation: str | None = None
    """The broker that alone may call this."""
    brokers_too: bool = False
    """Brokers need nothing more. They have no other rights."""
    lists_namespaces: bool = False
    """Who may not list everything gets what is in namespaces that it may list."""


@dataclass(frozen=True, slots=True)
class LeaderCall:
    """``is_audited``: the call changes something that other callers see, so the log says who made it.

    ``is_repeated``: clients repeat it as long as they run, so that it may rely on older answers about their rights.
    ``is_of_brokers``: nobody else makes it.
    """

    needs: Callable[[CallSubject], CallNeeds]
    is_audited: bool = False
    is_repeated: bool = False
    is_of_brokers: bool = False


def _rights(*rights: Right, audited: bool = False) -> LeaderCall:
    """One of these rights on the topic."""
    return LeaderCall(
        lambda subject: CallNeeds(all_of=(tuple(topic_right(right, subject.full_topic) for right in rights),)), audited
    )


def _verb(verb: str, *, audited: bool = False) -> LeaderCall:
    return LeaderCall(lambda subject: CallNeeds(all_of=((topic_verb(verb, subject.full_topic),),)), audited)


def _brokers(verb: str, *, audited: bool = False, brokers_too: bool = False) -> LeaderCall:
    return LeaderCall(lambda _: CallNeeds(all_of=((broker_verb(verb),),), brokers_too=brokers_too), audited)


def _apply(subject: CallSubject) -> CallNeeds:
    return CallNeeds(all_of=((topic_verb("update" if subject.topic_exists else "create", subject.full_topic),),))


def _group(subject: CallSubject) -> CallNeeds:
    topic = subject.full_topic
    return CallNeeds(all_of=((topic_right(Right.CONSUME, topic),), group_rights(topic, subject.group)))


def _report(subject: CallSubject) -> CallNeeds:
    return CallNeeds(incarnation=subject.incarnation)


_LIST_ALL = Access(verb="list", resource=TOPICS, namespace="")
_ANYBODY = LeaderCall(lambda _: CallNeeds(brokers_too=True))
_PRODUCE, _CONSUME = _rights(Right.PRODUCE), _rights(Right.CONSUME)
_READ_STATE = _rights(Right.ADMINISTER)
_ADMINISTER = _rights(Right.ADMINISTER, audited=True)
_FIND = _rights(Right.PRODUCE, Right.CONSUME)
_USE_GROUP = LeaderCall(_group)

LEADER_CALLS: Mapping[str, LeaderCall] = {
    "Topics.Locate": _FIND,
    "Topics.Watch": replace(_FIND, is_repeated=True),
    "Topics.History": _FIND,
    "Topics.ReportUnreachable": _ANYBODY,
    "Topics.SignUploads": _PRODUCE,
    "Topics.SignReads": _CONSUME,
    "Topics.ListFiles": _CONSUME,
    "Topics.GetFilerKeys": _rights(Right.CONSUME, audited=True),
    "Groups.JoinGroup": replace(_USE_GROUP, is_repeated=True),  # also a heartbeat
    "Groups.LeaveGroup": _USE_GROUP,
    "Groups.CommitPositions": _USE_GROUP,
    "Groups.GetPositions": _USE_GROUP,
    "Groups.SetPositions": _ADMINISTER,
    "Groups.DeleteGroup": _ADMINISTER,
    "Groups.ListGroups": _CONSUME,
    "Publishes.ClaimApp": _PRODUCE,
    "Publishes.PublishAtomically": _PRODUCE,
    "Admin.ApplyTopic": LeaderCall(_apply, is_audited=True),
    "Admin.AlterTopic": _verb("update", audited=True),
    "Admin.ExportTopic": _verb("get"),
    "Admin.DeleteTopic": _verb("delete", audited=True),
    "Admin.PauseScaling": _ADMINISTER,
    "Admin.ListTopics": LeaderCall(lambda _: CallNeeds(all_of=((_LIST_ALL,),), lists_namespaces=True)),
    "Admin.ListPins": _READ_STATE,
    "Admin.TrimTopic": _ADMINISTER,
    "Admin.RecoverTopic": _ADMINISTER,
    "Admin.ReadStory": _READ_STATE,
    "Admin.ListDecisions": LeaderCall(lambda _: CallNeeds(all_of=((_LIST_ALL,),))),
    "Admin.ChangeSegments": _ADMINISTER,
    "Admin.AcceptLoss": _ADMINISTER,
    # The relay connects only to brokers, so a broker needs their list.
    "Admin.ListBrokers": _brokers("list", brokers_too=True),
    "Admin.DrainBroker": _brokers("update", audited=True),
    "Admin.UndrainBroker": _brokers("update", audited=True),
    "Brokers.Report": LeaderCall(_report, is_of_brokers=True),
    # These look at the caller themselves: what it gets is its own.
    "Auth.Login": LeaderCall(lambda _: CallNeeds(brokers_too=True), is_audited=True),
    "Auth.GetGrants": _ANYBODY,
    "Auth.WhoAmI": _ANYBODY,
    "Auth.CheckAccess": _ANYBODY,
    "Auth.ListAuthorities": _brokers("list"),
    "Auth.RotateAuthority": _brokers("update", audited=True),
}


def list_namespace(namespace: str) -> Access:
    """What shows the topics of one namespace to a caller that may not list all."""
    return Access(verb="list", resource=TOPICS, namespace=namespace)
