"""The leader's metrics are what docs/metrics.md says."""

from __future__ import annotations

import re
from pathlib import Path

from smq_core.access.modes import SecurityMode
from smq_core.model.group_start import GroupStart
from smq_operator.metrics import Metrics
from smq_operator.security.access.access_control import AccessControl
from smq_operator.security.access.audit import AccessAudit, DenialReason
from smq_operator.security.authority.leader_certificate import LeaderCertificate
from smq_operator.security.leader_security import LeaderSecurity
from smq_proto.signed_grants import GrantSigner, new_signing_key
from smq_storage.object_store.store import open_store
from support.in_memory.authorities import own_authorities
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, running_leader
from support.virtual_time import virtual_time
from support.waiting import wait_until

DOCS = Path(__file__).parents[4] / "docs" / "metrics.md"


def exposed(leader: LeaderInMemory, security: LeaderSecurity | None = None) -> str:
    """What the leader serves at /metrics."""
    metrics = Metrics(
        topics=leader.topics,
        registry=leader.registry,
        decisions=leader.decisions,
        loop=leader.loop,
        filer_clock=leader.parts.filer_clock,
        garbage_collector=leader.garbage_collector,
        file_lists=leader.parts.file_lists,
        merger=leader.parts.merger,
        group_lags=leader.parts.group_lags,
        kafka_lags=leader.parts.kafka_lag_samples,
        tasks=leader.tasks,
        clock=leader.parts.clock,
        mode=SecurityMode.PERMISSIVE,
        security=security,
    )
    return metrics.exposition()[0].decode()


@virtual_time
async def test_every_metric_is_documented_and_every_documented_one_exists():
    store = open_store("memory://")
    fleet, platform = FakeFleet(store), FakePlatform(2)
    for name in ("a", "b"):
        fleet.add(name)
    platform.add_topic("default/t")
    leader = LeaderInMemory(platform, fleet, store)
    async with running_leader(leader):
        await wait_until(lambda: leader.decisions.recent and leader.parts.filer_clock.skew_us is not None)
        await leader.groups.join("default/t", "g", "a", GroupStart.EARLIEST, 0)
        await wait_until(lambda: leader.parts.group_lags.reports.get("default/t"))
        leader.tasks.record_failure("cleanup", ValueError("broken"))
        leader.tasks.problems.quarantine("_deleted/u.json", "damaged")
        authorities, _ = own_authorities(lambda: 1_700_000_000.0)
        audit = AccessAudit(lambda: 0.0)
        audit.denied[DenialReason.NO_TOKEN] = 2
        audit.record_open_call("Topics.Locate", "10.0.0.1:7")
        security = LeaderSecurity(
            authorities=authorities,
            certificate=LeaderCertificate(authorities, "leader-1", lambda: 1_700_000_000.0),
            grants=GrantSigner(new_signing_key()),
            access=AccessControl(None, None, audit),  # type: ignore[arg-type]
        )
        text = exposed(leader, security)
        leader.topics["default/t"].index.is_read = False
        unknown = exposed(leader)
    served = set(re.findall(r"^(smq_\w+)(?:\{| )", text, re.MULTILINE))
    documented = set(re.findall(r"^\| `(smq_\w+)`", DOCS.read_text().split("## Leader")[1], re.MULTILINE))
    assert served == documented
    assert 'smq_leader_brokers{state="alive"} 2.0' in text
    assert 'smq_leader_access_denied_total{reason="no_token"} 2.0' in text
    assert 'smq_leader_open_calls_total{call="Topics.Locate"} 1.0' in text
    assert 'smq_leader_security_mode{mode="permissive"} 1.0' in text
    assert 'smq_leader_security_mode{mode="required"} 0.0' in text
    assert "smq_leader_certificate_expiry_timestamp_seconds 1.7000864e+09" in text
    assert re.search(
        r'smq_leader_authority_expiry_timestamp_seconds\{authority="\w+",phase="signing"\} 1.731536e', text
    )
    assert 'smq_group_lag_messages{group="g",kind="smq",topic="default/t"} 0.0' in text
    assert 'smq_group_members{group="g",kind="smq",topic="default/t"} 1.0' in text
    assert 'smq_topic_groups{kind="smq",topic="default/t"} 1.0' in text
    assert 'smq_topic_segments{phase="open",topic="default/t"} 1.0' in text
    assert 'smq_leader_decisions_total{action="create",topic="default/t"} 1.0' in text
    assert 'smq_leader_task_failures_total{task="cleanup"} 1.0' in text
    assert 'smq_leader_unreadable_documents{kind="deleted"} 1.0' in text
    assert 'smq_topic_lost_messages{topic="default/t"} 0.0' in text
    assert not re.search(r"^smq_topic_(lost_messages|open_ended_losses)\{", unknown, re.MULTILINE), "nobody knows yet"
