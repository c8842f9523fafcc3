"""What is done to a running cluster and its clients, by seed: storms of faults that overlap."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence

from client_processes import ClientProcesses
from faults.client_faults import ClientFaults
from faults.clocks import SteppedClocks
from faults.layout_faults import LayoutFaults
from faults.network_partitions import NetworkPartitions
from faults.process_faults import ProcessFaults

import smq
from smq_storage.process.seaweedfs import SeaweedProcess
from support.fault_injection.network_namespaces import NamespaceNetwork
from support.processes.local_cluster import LocalCluster

FAULTS_AT_ONCE = (1, 1, 2, 3, 4)
# Within which the faults of a storm begin.
STORM_SECONDS = 8.0
LONGEST_CUT = 10.0

Fault = Callable[[random.Random], str]


class ChaosFaults:
    """``counts``: how often what was done. With a ``network`` it is cut too, with ``clocks`` these are stepped."""

    def __init__(
        self,
        cluster: LocalCluster,
        seaweed: SeaweedProcess,
        clients: Sequence[ClientProcesses],
        topics: dict[str, int],
        seed: int,
        network: NamespaceNetwork | None,
        clocks: SteppedClocks | None,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._ended = threading.Event()
        self._layout = LayoutFaults(cluster, topics)
        processes = ProcessFaults(cluster, seaweed, self._layout, self.wait)
        of_clients = ClientFaults(clients, self.wait)
        self._kinds: list[tuple[int, Fault]] = [
            (4, processes.kill_broker),
            (2, processes.terminate_broker),
            (3, processes.pause_broker),
            (2, processes.kill_replicas),
            (2, processes.pause_replicas),
            (2, processes.kill_replicas_unseen),
            (2, processes.kill_leader),
            (2, processes.pause_leader),
            (2, processes.kill_everything),
            (2, processes.stop_filer),
            (3, self._layout.split),
            (3, self._layout.merge),
            (2, self._layout.roll_or_move),
            (2, self._layout.drain),
            (3, of_clients.kill_writer),
            (2, of_clients.replace_writer),
            (2, of_clients.kill_member),
            (2, of_clients.pause_member),
        ]
        if network is not None:
            self._network = network
            self._network_free = threading.Lock()
            self._kinds.append((8, self.cut))
        if clocks is not None:
            self._kinds.append((4, clocks.step))

    def wait(self, seconds: float) -> None:
        self._ended.wait(seconds)

    def is_stable(self) -> bool:
        return self._layout.is_stable()

    def storm(self) -> list[str]:
        """Does some things, which overlap if there are several. Returns what was done, in the order of their ends."""
        kinds = [kind for weight, kind in self._kinds for _ in range(weight)]
        done: list[str] = []
        failures: list[BaseException] = []

        def run(kind: Fault, delay: float, seed: int) -> None:
            try:
                self.wait(delay)
                done.append(self._do(kind, random.Random(seed)))
            except BaseException as error:
                failures.append(error)

        threads = []
        for _ in range(self._random.choice(FAULTS_AT_ONCE)):
            drawn = (self._random.choice(kinds), self._random.uniform(0, STORM_SECONDS), self._random.getrandbits(32))
            threads.append(threading.Thread(target=run, args=drawn))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return done

    def _do(self, kind: Fault, draw: random.Random) -> str:
        try:
            done = kind(draw)
        except (smq.SmqError, ProcessLookupError, LookupError, ValueError) as error:
            self.counts[f"{kind.__name__} (not possible)"] += 1
            return f"nothing ({kind.__name__}: {error})"
        self.counts[kind.__name__] += 1
        return done

    def cut(self, draw: random.Random) -> str:
        what, pairs = NetworkPartitions(self._network, draw).choose()
        seconds = draw.uniform(0.5, LONGEST_CUT)
        if not self._network_free.acquire(blocking=False):
            raise LookupError("the network is cut already")
        try:
            with NetworkPartitions(self._network, draw).cut(pairs):
                self.wait(seconds)
        finally:
            self._network_free.release()
        return f"{what} for {seconds:.1f} s"
