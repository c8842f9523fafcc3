"""Brokers that are not children of the leader: processes that act as Pods of a Deployment."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from types import TracebackType

from benchmarks.harness.child_process import ROOT
from benchmarks.harness.cluster import BenchmarkCluster, wait_for
from benchmarks.harness.meter import Groups
from smq_storage.process.ports import free_port


class _Pod:
    def __init__(self, cluster: BenchmarkCluster, name: str) -> None:
        self.name = name
        self._http = f"127.0.0.1:{free_port()}"
        settings = cluster.seaweed.settings("bench")
        words = ["--name", name, "--leader", cluster.leader, "--http", self._http, "--memory", cluster.spec.memory]
        words += ["--journal", str(cluster.folder / f"{name}-journal")] if cluster.spec.journal else []
        with (cluster.folder / f"{name}.log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "smq_broker.main", *words],
                cwd=ROOT,
                env=os.environ | settings.to_env(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def ready(self) -> bool:
        """What a readiness probe sees."""
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.name} ended at its start")
        try:
            with urllib.request.urlopen(f"http://{self._http}/readyz", timeout=1) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


class ProcessDeployment:
    """A context manager: ``count`` broker processes with the cluster's leader, which has no brokers itself."""

    def __init__(self, cluster: BenchmarkCluster, count: int) -> None:
        self._cluster = cluster
        self._count = count
        self._names = (f"pod-{number}" for number in itertools.count(1))
        self._pods: list[_Pod] = []
        self._leaving: list[_Pod] = []

    def __enter__(self) -> ProcessDeployment:
        try:
            self._pods = [_Pod(self._cluster, next(self._names)) for _ in range(self._count)]
            wait_for("the brokers are ready", lambda: all(pod.ready() for pod in self._pods))
            wait_for("the leader knows them", lambda: self._alive() == self._count)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def restart(self) -> list[float]:
        """Replaces every broker with maxSurge 1, maxUnavailable 0: when a new one is ready, an old one gets SIGTERM.

        As in Kubernetes a Pod that ends counts no more: the next new one starts at once. Returns when each SIGTERM
        was sent, by CLOCK_MONOTONIC.
        """
        return [self._replace(old) for old in list(self._pods)]

    def _replace(self, old: _Pod) -> float:
        pod = _Pod(self._cluster, next(self._names))
        self._pods.append(pod)
        wait_for(f"{pod.name} is ready", pod.ready)
        self._pods.remove(old)
        self._leaving.append(old)
        old.process.send_signal(signal.SIGTERM)
        return time.monotonic()

    def pids(self) -> dict[str, int]:
        """The living processes, those that leave among them."""
        return {p.name: p.process.pid for p in [*self._pods, *self._leaving] if p.process.poll() is None}

    def groups(self) -> Groups:
        """For a Meter."""
        return {**self._cluster.groups(), "broker": list(self.pids().values())}

    def _alive(self) -> int:
        return sum(b.state == "alive" for b in self._cluster.client.admin().brokers())

    def _end(self) -> None:
        for pod in [*self._pods, *self._leaving]:
            pod.process.kill()
            pod.process.wait()
