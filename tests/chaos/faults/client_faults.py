"""Writers with an id are killed or replaced while they live, members of the group are killed and paused."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections.abc import Callable, Sequence

from client_processes import ClientProcesses
from faults.process_faults import pause_seconds


class ClientFaults:
    """One fault at a time for each set of clients; LookupError if there is one."""

    def __init__(self, clients: Sequence[ClientProcesses], wait: Callable[[float], None]) -> None:
        self._clients = list(clients)
        self._wait = wait
        self._locks = [threading.Lock() for _ in clients]

    def kill_writer(self, draw: random.Random) -> str:
        """The next run sends what the killed one had no ack for."""
        with self._one(draw) as clients:
            name = draw.choice(clients.writers_with_id)
            clients.writers[name].kill()
            clients.writers[name].wait()
            clients.continue_writer(name)
        return f"kill -9 writer {name} of {clients.topic}; started it again"

    def replace_writer(self, draw: random.Random) -> str:
        """A writer hangs, another process takes its id, and then the first one goes on."""
        with self._one(draw) as clients:
            name = draw.choice(clients.writers_with_id)
            if not clients.has_sent(name):
                raise LookupError("it may claim its id after the other process, and then it fences that one")
            before = clients.writers[name]
            before.send_signal(signal.SIGSTOP)
            try:
                clients.continue_writer(name)
                seconds = pause_seconds(draw)
                self._wait(seconds)
            finally:
                before.send_signal(signal.SIGCONT)
        return f"paused writer {name} of {clients.topic} for {seconds:.1f} s while another process took its id"

    def kill_member(self, draw: random.Random) -> str:
        with self._one(draw) as clients:
            name = draw.choice(sorted(clients.members))
            clients.members[name].kill()
            clients.members[name].wait()
            clients.start_member(name)
        return f"kill -9 member {name} of {clients.topic}; started it again"

    def pause_member(self, draw: random.Random) -> str:
        seconds = pause_seconds(draw)
        with self._one(draw) as clients:
            name = draw.choice(sorted(clients.members))
            os.kill(clients.members[name].pid, signal.SIGSTOP)
            self._wait(seconds)
            os.kill(clients.members[name].pid, signal.SIGCONT)
        return f"paused member {name} of {clients.topic} for {seconds:.1f} s"

    @contextlib.contextmanager
    def _one(self, draw: random.Random):  # type: ignore[no-untyped-def]
        at = draw.randrange(len(self._clients))
        if not self._locks[at].acquire(blocking=False):
            raise LookupError("another fault of these clients is under way")
        try:
            yield self._clients[at]
        finally:
            self._locks[at].release()
