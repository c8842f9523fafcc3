"""A real cluster under load, with two and three replicas, while everything is done to it and to its clients.

Processes are killed, paused, stopped, cut apart and replaced, one at a time and several at once, up to all of them;
clocks are stepped; segments are split, merged and moved. Two topics have writers, readers and a group each. These
write down what they see, and the checker decides from that alone.

``make chaos`` runs ten minutes; ``--chaos-seconds`` and ``--chaos-seed`` change that. As root, and after
``make chaos-packages``, there are network partitions and stepped clocks; without, everything else is done.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.processes.local_cluster import manifest
from support.waiting import eventually

sys.path.insert(0, str(Path(__file__).parent))
from client_processes import ClientProcesses
from environment import ChaosEnvironment
from faults.chaos_faults import ChaosFaults

# The topics, with their numbers of replicas.
TOPICS = {"pairs": 2, "triples": 3}
WRITERS, READERS, MEMBERS = 2, 2, 3
"""Of each topic. The second writer has an id."""
PER_SECOND = 200
# Seconds in which the leader must have noticed a fault; only then can be checked whether it is handled.
NOTICED = 1.0
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(0)]


def test_nothing_is_lost_repeated_or_reordered(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    seconds = request.config.getoption("--chaos-seconds")
    seed = request.config.getoption("--chaos-seed")
    seed = int(time.time()) if seed is None else seed
    print(f"\nchaos for {seconds:.0f} s, seed {seed}, in {tmp_path}")
    with ChaosEnvironment(tmp_path) as environment, ExitStack() as stack:
        for missing in environment.missing:
            print(missing.upper())
        cluster = environment.cluster
        sets, uids = [], {}
        for topic, replicas in TOPICS.items():
            spec = {"segments": {"min": 2, "max": 16}, "flush": {"bytes": "1Mi", "interval": "2s"}}
            with cluster.connect() as client:
                client.admin().apply(manifest(topic, replicas=replicas, **spec))
                uids[topic] = client.admin().topic(topic).uid
            clients = ClientProcesses(tmp_path / topic, cluster.address, topic, environment.start_client)
            stack.callback(clients.kill)
            start_clients(clients)
            sets.append(clients)
        faults = ChaosFaults(cluster, environment.seaweed, sets, TOPICS, seed, environment.network, environment.clocks)
        for clients in sets:
            clients.wait_for_acks()
        run_faults(faults, seconds)
        print(f"faults: {', '.join(f'{count} {name}' for name, count in faults.counts.most_common())}")
        for clients in sets:
            clients.finish()
        cluster.stop()
        for clients in sets:
            clients.check(environment.seaweed.settings("chaos"), uids[clients.topic])
    if environment.missing:
        pytest.skip(f"all passed, but there were {'; '.join(environment.missing)}")


def start_clients(clients: ClientProcesses) -> None:
    for number in range(WRITERS):
        clients.start_writer(f"w{number}", PER_SECOND, with_id=number == 1)
    for number in range(READERS):
        clients.start_reader(f"r{number}")
    for number in range(MEMBERS):
        clients.start_member(f"m{number}")


def run_faults(faults: ChaosFaults, seconds: float) -> None:
    """One storm after the other, each when the one before has been dealt with."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        done = faults.storm()
        ended = time.monotonic()
        faults.wait(NOTICED)
        eventually(faults.is_stable, what=f"the cluster is stable after: {'; '.join(done)}", pause=0.1)
        now = time.monotonic()
        print(f"  {now - began:4.0f} s  {'; '.join(done)}; settled after {now - ended:.1f} s", flush=True)
