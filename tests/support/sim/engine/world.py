"""Virtual time: a heap of events, processes that die and pause, tasks that are generators.

A task yields microseconds to sleep or a Future to wait for, and receives the future's value or error. It belongs to a
process: it ends with the process, without cleanup, and pauses with it. Virtual threads, which run blocking code, do the
same. There is no other concurrency, and the seed determines everything.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any

from smq_core.errors import SmqError
from smq_storage.thread_runtime import RUNTIME
from support.sim.engine.story import Story
from support.sim.engine.virtual_threads import VirtualRuntime, VirtualThread

MS = 1_000
SECOND = 1_000_000

Steps = Generator[Any, Any, Any]


class Future:
    """A later answer. The first one counts."""

    __slots__ = ("done", "error", "value", "waiters")

    def __init__(self) -> None:
        self.done = False
        self.value: Any = None
        self.error: SmqError | None = None
        self.waiters: list[Callable[[Future], None]] = []

    def set(self, value: Any = None) -> None:
        self._end(value, None)

    def fail(self, error: SmqError) -> None:
        self._end(None, error)

    def then(self, callback: Callable[[Future], None]) -> None:
        if self.done:
            callback(self)
        else:
            self.waiters.append(callback)

    def _end(self, value: Any, error: SmqError | None) -> None:
        if self.done:
            return
        self.done, self.value, self.error = True, value, error
        waiters, self.waiters = self.waiters, []
        for callback in waiters:
            callback(self)


class Process:
    """One start of a program. A restart is another Process. Links are cut between ``host``s."""

    def __init__(self, world: World, host: str, name: str) -> None:
        self.world = world
        self.host = host
        self.name = name
        self.alive = True
        self.paused = False
        self.node: Any = None
        self._backlog: deque[Callable[[], None]] = deque()

    def run(self, action: Callable[[], None]) -> None:
        """Runs ``action`` now, on resume if the process is paused, or never if it is dead."""
        if not self.alive:
            return
        if self.paused:
            self._backlog.append(action)
        else:
            action()

    def after(self, delay: int, action: Callable[[], None]) -> None:
        self.world.after(delay, lambda: self.run(action))

    def start(self, steps: Steps) -> Future:
        """Runs a task in this process. Returns the future of its result or error."""
        done = Future()
        self.after(0, lambda: self._step(steps, done, None, None))
        return done

    def call(self, function: Callable[[], Any], name: str = "") -> Future:
        """Runs blocking code in a virtual thread. Returns the future of its result or error."""
        done = Future()

        def ended(result: Any, error: Any) -> None:
            done.set(result) if error is None else done.fail(error)

        VirtualThread(self, function, name, ended)
        return done

    def kill(self) -> None:
        self.alive = False
        self._backlog.clear()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        while self._backlog and self.alive and not self.paused:
            self._backlog.popleft()()

    def _step(self, steps: Steps, done: Future, value: Any, error: SmqError | None) -> None:
        try:
            step = steps.send(value) if error is None else steps.throw(error)
        except StopIteration as end:
            done.set(end.value)
        except SmqError as failure:
            done.fail(failure)
        else:
            if isinstance(step, int):
                self.after(step, lambda: self._step(steps, done, None, None))
            else:
                step.then(lambda f: self.after(0, lambda: self._step(steps, done, f.value, f.error)))


class World:
    """The clock, the random generator, and the pending events."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now = 0
        self.story = Story()
        self.events = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._counter = 0
        self._unique = 0
        self._failure: BaseException | None = None
        self.runtime = VirtualRuntime(self)
        self.threads: dict[VirtualThread, None] = {}
        """The virtual threads that have not ended, also those of dead processes."""
        with self.entered():
            self.thread_context = copy_context()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """What is made here, such as locks, is of the virtual runtime."""
        token = RUNTIME.set(self.runtime)
        try:
            yield
        finally:
            RUNTIME.reset(token)

    def fail(self, error: BaseException) -> None:
        """The history fails, although code that is under test may handle this error."""
        self._failure = self._failure or error

    def close(self) -> None:
        """The history is over: ends the threads."""
        with self.entered():
            while self.threads:
                self.threads.popitem()[0].end()

    def unique(self, what: str) -> str:
        self._unique += 1
        return f"{what}{self._unique}"

    def after(self, delay: int, action: Callable[[], None]) -> None:
        self._counter += 1
        heapq.heappush(self._heap, (self.now + delay, self._counter, action))

    def run_until(self, time: int) -> None:
        heap = self._heap
        with self.entered():
            while heap and heap[0][0] <= time:
                self.now, _, action = heapq.heappop(heap)
                self.events += 1
                action()
                if self._failure is not None:
                    raise self._failure
        self.now = time

    def chance(self, probability: float) -> bool:
        return probability > 0 and self.random.random() < probability

    def between(self, low: int, high: int) -> int:
        return low + int(self.random.random() * (high - low))

    def note(self, who: str, subject: str, what: str) -> None:
        """Adds a line to the story of ``subject`` (a segment, a batch, a process)."""
        self.story.add(self.now, who, subject, what)


def gather(futures: list[Future]) -> Future:
    """Done when all are done; failed with the first error."""
    whole = Future()
    left = len(futures)
    if not left:
        whole.set([])

    def one(future: Future) -> None:
        nonlocal left
        left -= 1
        if future.error is not None:
            whole.fail(future.error)
        elif left == 0:
            whole.set([f.value for f in futures])

    for future in futures:
        future.then(one)
    return whole
