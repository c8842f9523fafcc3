"""What a plan sends to other processes has paths in place of a token, and their tasks share one login."""

from __future__ import annotations

import pickle

import pytest

from smq.reading.topic_location import TopicLocation
from smq.transport.security.security_files import SecurityFiles
from smq_core.errors import InvalidRequest
from smq_storage.object_store.store import StoreSettings
from support.secure_release import TOKEN, SecureRelease


def location(release: SecureRelease, security: SecurityFiles | None) -> TopicLocation:
    store = StoreSettings(url="memory://")
    return TopicLocation(topic="default/t", uid="u", store=store, security=security, leaders=(release.leader,))


def test_processes_log_in_by_themselves_and_once(release: SecureRelease) -> None:
    sent = location(release, SecurityFiles(str(release.ca_file), str(release.token_file)))
    data = pickle.dumps(sent)
    assert TOKEN.encode() not in data
    first, second = pickle.loads(data).dialer(), pickle.loads(data).dialer()
    broker = release.broker()
    with first.flight(broker.replica), second.flight(broker.replica):
        assert release.calls["Login"] == 1
    assert location(release, None).dialer().credentials is None


def test_a_token_is_not_sent(release: SecureRelease) -> None:
    with pytest.raises(InvalidRequest, match="pass token_file"):
        pickle.dumps(location(release, SecurityFiles(str(release.ca_file), None, TOKEN)))
