"""A simulated broker's status, as the real one reports it."""

from __future__ import annotations

from smq_core.model.entities import Topic
from smq_core.replica.segment_replica import ReplicaState
from smq_proto.enums import REPLICA_STATE
from smq_proto.v1 import data_pb2 as pb
from support.sim.brokers.broker import SimulatedBroker


def status_of(broker: SimulatedBroker, topic: Topic) -> pb.BrokerStatus:
    """The unsealed segments, and the usage of memory."""
    counters = broker.counters()
    status = pb.BrokerStatus(
        broker=broker.name,
        incarnation=broker.incarnation,
        draining=broker.leaving,
        tail_bytes=int(broker.memory_share() * 1_000),
        memory_limit=1_000,
    )
    for name, hosted in broker.hosted_segments.items():
        machine = hosted.machine
        if machine.state is ReplicaState.SEALED:
            continue
        counted = counters.get(name)
        status.segments.append(
            pb.SegmentReport(
                topic=topic.name,
                uid=topic.uid,
                segment=name,
                primary=machine.config.is_primary,
                state=REPLICA_STATE.value(machine.state),
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
