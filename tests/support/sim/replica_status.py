"""A simulated broker's status, as the real one reports it."""

from __future__ import annotations

from smq_core.model import Topic
from smq_core.replica import State
from smq_proto.v1 import data_pb2 as pb
from support.sim.broker import Broker


def status_of(broker: Broker, topic: Topic) -> pb.BrokerStatus:
    """What it holds that is not sealed, and how full its memory is."""
    counters = broker.counters()
    status = pb.BrokerStatus(
        broker=broker.name,
        incarnation=broker.incarnation,
        draining=broker.leaving,
        tail_bytes=int(broker.memory_share() * 1_000),
        memory_limit=1_000,
    )
    for name, holding in broker.holdings.items():
        machine = holding.machine
        if machine.state is State.SEALED:
            continue
        counted = counters.get(name)
        status.segments.append(
            pb.SegmentReport(
                topic=topic.name,
                uid=topic.uid,
                segment=name,
                primary=machine.config.is_primary,
                state=machine.state.value,
                end=machine.end,
                watermark=machine.watermark,
                chain_end=machine.chain_end,
                messages=counted.messages if counted else 0,
                bytes=counted.bytes if counted else 0,
                batches=counted.batches if counted else 0,
                histogram=counted.histogram if counted else (),
            )
        )
    return status
