"""What is done to a running cluster, by seed: one fault at a time, each with what ends it."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable

from network_partitions import NetworkPartitions

import smq
from smq_storage.process.seaweedfs import SeaweedProcess
from support.fault_injection.network_namespaces import NamespaceNetwork
from support.processes.local_cluster import LocalCluster

PAUSE = 3.0
LONGEST_CUT = 10.0


class ChaosFaults:
    """``step`` does one thing and says what. ``wait`` is how time passes (it returns early when the run ends).

    With a ``network`` it is cut too, and while it is cut other things are done. ``counts``: how often what was done.
    """

    def __init__(
        self, cluster: LocalCluster, seaweed: SeaweedProcess, topic: str, seed: int, network: NamespaceNetwork | None
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._cluster = cluster
        self._seaweed = seaweed
        self._topic = topic
        self._random = random.Random(seed)
        self._ended = threading.Event()
        self._kinds: list[tuple[int, Callable[[], str]]] = [
            (4, self.kill_broker),
            (2, self.terminate_broker),
            (3, self.pause_broker),
            (2, self.kill_leader),
            (2, self.pause_leader),
            (1, self.stop_filer),
            (4, self.split),
            (3, self.merge),
            (2, self.roll_or_move),
            (2, self.drain),
        ]
        self._meanwhile = [self.split, self.merge, self.roll_or_move, self.kill_broker, self.terminate_broker]
        if network is not None:
            self._cuts = NetworkPartitions(network, self._random)
            self._kinds.append((12, self.cut))

    def step(self) -> str:
        kinds = [kind for weight, kind in self._kinds for _ in range(weight)]
        return self._do(self._random.choice(kinds))

    def _do(self, kind: Callable[[], str]) -> str:
        try:
            done = kind()
        except (smq.SmqError, ProcessLookupError, LookupError, ValueError) as error:
            self.counts[f"{kind.__name__} (not possible)"] += 1
            return f"nothing ({kind.__name__}: {error})"
        self.counts[kind.__name__] += 1
        return done

    def wait(self, seconds: float) -> None:
        self._ended.wait(seconds)

    def is_stable(self) -> bool:
        """No segment is being sealed and every replica is alive: a second fault finds what it was promised."""
        try:
            with self._cluster.connect() as client:
                segments = client.admin().segments(self._topic)
                brokers = [b for b in client.admin().brokers() if b.state == "alive"]
        except smq.SmqError:
            return False
        held = Counter(load.segment for b in brokers for load in b.segments if load.state == "open")
        return bool(segments) and all(s.phase == "open" and held[s.name] == len(s.brokers) == 2 for s in segments)

    # ---- processes

    def _broker(self) -> tuple[str, int]:
        return self._random.choice(sorted(self._cluster.pids().items()))

    def kill_broker(self) -> str:
        name, pid = self._broker()
        os.kill(pid, signal.SIGKILL)
        return f"kill -9 {name}"

    def terminate_broker(self) -> str:
        name, pid = self._broker()
        os.kill(pid, signal.SIGTERM)
        return f"SIGTERM {name}"

    def pause_broker(self) -> str:
        name, pid = self._broker()
        seconds = self._random.uniform(0.2, PAUSE)
        self._pause(pid, seconds)
        return f"paused {name} for {seconds:.1f} s"

    def pause_leader(self) -> str:
        seconds = self._random.uniform(0.2, PAUSE)
        self._pause(self._cluster.leader_pid, seconds)
        return f"paused the leader for {seconds:.1f} s"

    def _pause(self, pid: int, seconds: float) -> None:
        os.kill(pid, signal.SIGSTOP)
        self.wait(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def kill_leader(self) -> str:
        self._cluster.kill_leader()
        self.wait(self._random.uniform(0, PAUSE))
        self._cluster.start(wait=False)
        return "kill -9 the leader; started it again"

    def stop_filer(self) -> str:
        seconds = self._random.uniform(0.5, 2 * PAUSE)
        self._seaweed.stop()
        self.wait(seconds)
        self._seaweed.start()
        return f"SeaweedFS was away for {seconds:.1f} s"

    # ---- the network

    def cut(self) -> str:
        """Cuts something for a while; in half of the cases something else is done meanwhile."""
        what, pairs = self._cuts.choose()
        seconds = self._random.uniform(0.5, LONGEST_CUT)
        description = f"{what} for {seconds:.1f} s"
        with self._cuts.cut(pairs):
            self.wait(seconds / 2)
            if self._random.random() < 0.5:
                description += ", meanwhile " + self._do(self._random.choice(self._meanwhile))
            self.wait(seconds / 2)
        return description

    # ---- the layout

    def split(self) -> str:
        with self._cluster.connect() as client:
            segment = self._random.choice(self._open(client))
            client.admin().split(self._topic, segment.name)
        return f"split {segment.name}"

    def merge(self) -> str:
        with self._cluster.connect() as client:
            ordered = sorted(self._open(client), key=lambda s: s.start)
            at = self._random.randrange(len(ordered) - 1)
            names = [s.name for s in ordered[at : at + 2]]
            client.admin().merge(self._topic, names)
        return "merge " + " ".join(names)

    def roll_or_move(self) -> str:
        with self._cluster.connect() as client:
            segment = self._random.choice(self._open(client))
            action = self._random.choice(["roll", "move"])
            getattr(client.admin(), action)(self._topic, segment.name)
        return f"{action} {segment.name}"

    def drain(self) -> str:
        name, pid = self._broker()
        with self._cluster.connect() as client:
            client.admin().drain(name)
        self.wait(PAUSE)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)  # it comes back as another incarnation, which takes segments again
        return f"drained {name}"

    def _open(self, client: smq.Client) -> list[smq.SegmentInfo]:
        return [s for s in client.admin().segments(self._topic) if s.phase == "open"]
