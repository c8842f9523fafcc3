"""A forward from a free local port to a Service, by `kubectl port-forward`."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from queue import SimpleQueue
from threading import Event, Thread
from typing import Self

from smq_storage.process.locks import make_lock

FORWARDING = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) ")
# Between two starts of kubectl while the Service has no Pod to forward to.
RETRY_SECONDS = 0.5


class ForwardFailed(Exception):
    """kubectl cannot forward. The message is what it said."""


class PortForward:
    """Use it as a context manager; ``address`` stays the same until it is closed.

    kubectl forwards to one Pod of the Service, and ends when that Pod has ended. It is started again then, so that a
    command that runs for long outlives the Pods of a rollout.
    """

    def __init__(self, kubectl: Sequence[str], service: str, namespace: str, port: int) -> None:
        self._command = [*kubectl, "port-forward", f"service/{service}", f"--namespace={namespace}"]
        self._remote_port = port
        self._local_port = ""
        self._started: SimpleQueue[str | None] = SimpleQueue()
        self._output: list[str] = []
        self._process: subprocess.Popen[str] | None = None
        self._closed = Event()
        self._lock = make_lock()
        self._thread = Thread(target=self._run, name="port-forward", daemon=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._local_port}"

    def __enter__(self) -> Self:
        """Returns when connections are forwarded. Raises ForwardFailed if the first kubectl ends instead."""
        self._thread.start()
        try:
            if self._started.get() is None:
                raise ForwardFailed("\n".join(self._output) or "kubectl port-forward ended")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closed.set()
            if self._process is not None:
                self._process.terminate()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._closed.is_set():
                    return
                self._process = self._start()
            self._read_output(self._process)
            if not self._local_port:
                self._started.put(None)
                return
            self._closed.wait(RETRY_SECONDS)

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self._command, f"{self._local_port}:{self._remote_port}"],
            stdin=subprocess.DEVNULL,  # it is the command's
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,  # Ctrl-C ends the command, which still needs its connections to end in order
        )

    def _read_output(self, process: subprocess.Popen[str]) -> None:
        """Until kubectl ends. It writes a line for each connection, and would block if nobody read them."""
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                if self._local_port:
                    continue
                if found := FORWARDING.match(line):
                    self._local_port = found[1]
                    self._started.put(self._local_port)
                else:
                    self._output.append(line.strip())
