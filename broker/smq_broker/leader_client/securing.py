"""Makes the security of this process, with the first login at a leader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from smq_broker.access.security import OpenBroker
from smq_broker.leader_client.leader_channels import LeaderChannels
from smq_broker.runtime.broker_metrics import BrokerMetrics
from smq_broker.runtime.settings import BrokerSettings

if TYPE_CHECKING:
    from smq_broker.access.permissive_broker import PermissiveBroker
    from smq_broker.access.secure_broker import SecureBroker


def make_security(
    settings: BrokerSettings,
    incarnation: str,
    *,
    leaders: Callable[[], Sequence[str]],
    channels: LeaderChannels,
    leader_answered_at: Callable[[], float | None],
    topic_name: Callable[[str], str],
    broker_metrics: BrokerMetrics,
    wait: Callable[[float], bool],
    on_failure: Callable[[str, float], None],
) -> OpenBroker | SecureBroker | PermissiveBroker | None:
    """Logs in at a leader, if the release is secure. None if ``wait`` returned True before a leader let this process.

    ``on_failure`` gets each reason, and after how many seconds it is tried again.
    """
    if not settings.ca_file:
        return OpenBroker()
    from smq_broker.access.permissive_broker import PermissiveBroker
    from smq_broker.access.secure_broker import SecureBroker
    from smq_broker.leader_client.login import LeaderLogin

    login = LeaderLogin(incarnation, leaders=leaders, channels=channels, hosts=settings.kafka_hosts())
    make = partial(
        SecureBroker,
        log_in=login.next,
        leader_answered_at=leader_answered_at,
        topic_name=topic_name,
        broker_metrics=broker_metrics,
    )
    if settings.permissive:
        return PermissiveBroker(login.once_or_later(), make=make, log_in=login.next)
    first = login.until_given(wait, on_failure)
    return make(first) if first is not None else None
