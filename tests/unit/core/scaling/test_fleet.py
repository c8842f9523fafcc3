from __future__ import annotations

from dataclasses import replace

import pytest

from smq_core.model.entities import Liveness, Replica
from smq_core.scaling.broker_fleet import (
    MEMORY_SCALE_OUT_COOLDOWN,
    SCALE_IN_AFTER,
    FleetLoad,
    FleetPolicy,
    FleetScaler,
    choose_broker_to_drain,
)
from smq_core.scaling.placement import BrokerView

POLICY = FleetPolicy(minimum=2, maximum=10, bytes_per_second=100.0, batches_per_second=1000.0)


def test_traffic_scales_out_at_once() -> None:
    assert FleetScaler().desired_brokers(POLICY, 2, FleetLoad(bytes_per_second=300.0), 2, 0).brokers == 5


def test_memory_pressure_scales_out_by_one() -> None:
    assert FleetScaler().desired_brokers(POLICY, 3, FleetLoad(memory_share=0.9), 2, 0).brokers == 4


def test_a_broker_added_for_memory_has_time_to_help() -> None:
    fleet, load = FleetScaler(), FleetLoad(memory_share=0.9)
    assert fleet.desired_brokers(POLICY, 3, load, 2, 0).brokers == 4
    assert fleet.desired_brokers(POLICY, 4, load, 2, MEMORY_SCALE_OUT_COOLDOWN - 1).brokers == 4
    assert fleet.desired_brokers(POLICY, 4, load, 2, MEMORY_SCALE_OUT_COOLDOWN).brokers == 5


def test_never_more_than_the_maximum_nor_fewer_than_replicas() -> None:
    assert FleetScaler().desired_brokers(POLICY, 9, FleetLoad(bytes_per_second=1e9), 2, 0).brokers == 10
    fleet = FleetScaler()
    for now in range(0, 10 * SCALE_IN_AFTER, SCALE_IN_AFTER):
        assert fleet.desired_brokers(POLICY, 3, FleetLoad(), 3, now).brokers == 3


def test_scale_in_is_slow_and_one_at_a_time() -> None:
    fleet = FleetScaler()
    assert fleet.desired_brokers(POLICY, 6, FleetLoad(), 2, 0).brokers == 6
    assert fleet.desired_brokers(POLICY, 6, FleetLoad(), 2, SCALE_IN_AFTER - 1).brokers == 6
    assert fleet.desired_brokers(POLICY, 6, FleetLoad(), 2, SCALE_IN_AFTER).brokers == 5
    assert fleet.desired_brokers(POLICY, 5, FleetLoad(), 2, SCALE_IN_AFTER + 1).brokers == 5


def test_a_busy_moment_starts_the_wait_anew() -> None:
    fleet = FleetScaler()
    fleet.desired_brokers(POLICY, 4, FleetLoad(), 2, 0)
    fleet.desired_brokers(POLICY, 4, FleetLoad(bytes_per_second=200.0), 2, SCALE_IN_AFTER // 2)
    assert fleet.desired_brokers(POLICY, 4, FleetLoad(), 2, SCALE_IN_AFTER).brokers == 4


@pytest.mark.parametrize("share", [s / 10 for s in range(60)])
def test_a_steady_load_becomes_stable(share: float) -> None:
    fleet, current, seen = FleetScaler(), 2, []
    for second in range(0, 4000, 10):
        load = FleetLoad(bytes_per_second=share * 100.0)
        current = fleet.desired_brokers(POLICY, current, load, 2, second * 1_000_000).brokers
        seen.append(current)
    assert len(set(seen[250:])) == 1, seen


def test_a_policy_that_cannot_be_met_is_refused() -> None:
    with pytest.raises(ValueError, match="min 3, max 2"):
        FleetPolicy(minimum=3, maximum=2)


def test_the_emptiest_broker_is_drained_and_a_draining_one_goes_on() -> None:
    brokers = [
        BrokerView(replica=Replica("a", "1", ""), segments=3),
        BrokerView(replica=Replica("b", "2", ""), segments=1),
        BrokerView(replica=Replica("c", "3", ""), liveness=Liveness.SUSPECT),
    ]
    chosen = choose_broker_to_drain(brokers)
    assert chosen is not None and chosen.replica.broker == "b"
    draining = BrokerView(replica=Replica("d", "4", ""), draining=True, segments=9)
    chosen = choose_broker_to_drain([*brokers, draining])
    assert chosen is draining


def test_how_long_scale_in_waits_can_be_chosen() -> None:
    fleet, quick = FleetScaler(), replace(POLICY, scale_in_after=5)
    assert fleet.desired_brokers(quick, 6, FleetLoad(), 2, 0).brokers == 6
    assert fleet.desired_brokers(quick, 6, FleetLoad(), 2, 5).brokers == 5


def test_a_broker_that_drained_and_is_gone_does_not_go_again() -> None:
    went = BrokerView(replica=Replica("a", "a", ""), liveness=Liveness.GONE, draining=True)
    there = BrokerView(replica=Replica("b", "b", ""), segments=3)
    assert choose_broker_to_drain([went, there]) == there
