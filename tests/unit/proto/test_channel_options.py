"""No channel between our processes goes through a proxy of the environment."""

from __future__ import annotations

import pyarrow.flight as fl
import pytest

from smq.transport.dialer import DIRECT
from smq_broker.leader_client import leader_channels
from smq_broker.replication import lane_stream
from smq_operator.brokers import calls
from smq_operator.publishing import reference_stream
from smq_proto.channel_options import NO_PROXY
from support.processes.useless_proxy import set_proxies
from support.waiting import HANG_GUARD

OPTIONS = {
    "broker to leader": leader_channels.COMMON,
    "broker to broker": lane_stream.CONNECTION,
    "leader to broker": calls._OPTIONS,
    "leader to broker, references": reference_stream._OPTIONS,
    "client": DIRECT._with_proxy(()),
    "all others": [NO_PROXY],
}


@pytest.mark.parametrize("which", OPTIONS)
def test_a_channel_ignores_the_proxy_of_the_environment(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_proxies(monkeypatch)
    with fl.FlightServerBase("grpc://127.0.0.1:0") as server:
        options = [*OPTIONS[which], ("grpc.use_local_subchannel_pool", 1)]
        with (
            fl.connect(f"grpc://127.0.0.1:{server.port}", generic_options=options) as client,
            pytest.raises(NotImplementedError),  # the server has answered
        ):
            list(client.list_flights(options=fl.FlightCallOptions(timeout=HANG_GUARD)))
