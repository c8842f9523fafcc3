"""Brokers, the leader and SeaweedFS are killed, terminated and paused: one of them, all replicas, or everything."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections.abc import Callable, Iterable

from faults.layout_faults import LayoutFaults

from smq_storage.process.seaweedfs import SeaweedProcess
from support.processes.local_cluster import LocalCluster

SHORT, LONG = (0.2, 3.0), (30.0, 45.0)
"""Seconds. Whoever is paused for the longer time has been given up by all others when it goes on."""


def pause_seconds(draw: random.Random) -> float:
    return draw.uniform(*(LONG if draw.random() < 0.15 else SHORT))


def kill_at_once(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class ProcessFaults:
    """``wait`` passes time, and returns early when the run ends. Faults of one process at a time do not overlap.

    LookupError if the process is just treated otherwise.
    """

    def __init__(
        self, cluster: LocalCluster, seaweed: SeaweedProcess, layout: LayoutFaults, wait: Callable[[float], None]
    ) -> None:
        self._cluster = cluster
        self._seaweed = seaweed
        self._layout = layout
        self._wait = wait
        self._leader, self._filer = threading.Lock(), threading.Lock()

    def kill_broker(self, draw: random.Random) -> str:
        name, pid = self._broker(draw)
        os.kill(pid, signal.SIGKILL)
        return f"kill -9 {name}"

    def terminate_broker(self, draw: random.Random) -> str:
        name, pid = self._broker(draw)
        os.kill(pid, signal.SIGTERM)
        return f"SIGTERM {name}"

    def pause_broker(self, draw: random.Random) -> str:
        name, pid = self._broker(draw)
        seconds = pause_seconds(draw)
        self._pause([pid], seconds)
        return f"paused {name} for {seconds:.1f} s"

    def kill_replicas(self, draw: random.Random) -> str:
        segment, names = self._layout.replicas(draw)
        pids = self._cluster.pids()
        kill_at_once([pids[name] for name in names])
        return f"kill -9 all replicas of {segment}"

    def pause_replicas(self, draw: random.Random) -> str:
        segment, names = self._layout.replicas(draw)
        pids, seconds = self._cluster.pids(), pause_seconds(draw)
        self._pause([pids[name] for name in names], seconds)
        return f"paused all replicas of {segment} for {seconds:.1f} s"

    def kill_replicas_unseen(self, draw: random.Random) -> str:
        """The leader is paused first, so that what it knows of them is old."""
        segment, names = self._layout.replicas(draw)
        with self._exclusively(self._leader):
            seconds = draw.uniform(*SHORT) + 3
            os.kill(self._cluster.leader_pid, signal.SIGSTOP)
            self._wait(seconds)
            pids = self._cluster.pids()
            kill_at_once([pids[name] for name in names])
            self._resume([self._cluster.leader_pid])
        return f"paused the leader for {seconds:.1f} s, then kill -9 all replicas of {segment}"

    def pause_leader(self, draw: random.Random) -> str:
        seconds = pause_seconds(draw)
        with self._exclusively(self._leader):
            self._pause([self._cluster.leader_pid], seconds)
        return f"paused the leader for {seconds:.1f} s"

    def kill_leader(self, draw: random.Random) -> str:
        with self._exclusively(self._leader):
            self._cluster.kill_leader()
            self._wait(draw.uniform(*SHORT))
            self._cluster.start(wait=False)
        return "kill -9 the leader; started it again"

    def kill_everything(self, draw: random.Random) -> str:
        """Leader and brokers, in half of the cases SeaweedFS too."""
        filer = draw.random() < 0.5
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._exclusively(self._leader))
            pids = [self._cluster.leader_pid, *self._cluster.pids().values()]
            if filer:
                stack.enter_context(self._exclusively(self._filer))
                pids.append(self._seaweed.pid or self._cluster.leader_pid)
            kill_at_once(pids)
            self._cluster.kill_leader()
            if filer:
                self._seaweed.kill()
            self._wait(draw.uniform(*SHORT))
            if filer:
                self._seaweed.start()
            self._cluster.start(wait=False)
        return "kill -9 leader and all brokers" + (" and SeaweedFS" if filer else "") + "; started them again"

    def stop_filer(self, draw: random.Random) -> str:
        seconds, kill = draw.uniform(0.5, 6.0), draw.random() < 0.5
        with self._exclusively(self._filer):
            (self._seaweed.kill if kill else self._seaweed.stop)()
            self._wait(seconds)
            self._seaweed.start()
        return f"SeaweedFS was {'killed' if kill else 'stopped'} for {seconds:.1f} s"

    def _broker(self, draw: random.Random) -> tuple[str, int]:
        return draw.choice(sorted(self._cluster.pids().items()))

    def _pause(self, pids: list[int], seconds: float) -> None:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        self._wait(seconds)
        self._resume(pids)

    def _resume(self, pids: list[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    @contextlib.contextmanager
    def _exclusively(self, lock: threading.Lock) -> Iterable[None]:  # type: ignore[misc]
        if not lock.acquire(blocking=False):
            raise LookupError("something else is being done to it")
        try:
            yield
        finally:
            lock.release()
