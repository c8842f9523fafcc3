"""Virtual threads: greenlets that run the product's blocking code in virtual time.

One runs at a time, and another one goes on only when it waits: for a lock, a condition, an event, a queue, a time or an
answer. Before a thread takes a lock it may be preempted; the seed determines when. A thread belongs to a process: it
pauses with it, and never goes on when the process is dead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, cast

from greenlet import GreenletExit, getcurrent, greenlet

from smq_storage.thread_runtime import ThreadRuntime

if TYPE_CHECKING:
    import threading
    from queue import SimpleQueue

    from support.sim.engine.world import Future, Process, World

SECOND = 1_000_000
# How often a thread is preempted when it is about to take a lock, and for how long at most.
PREEMPTED_SHARE = 0.05
PREEMPTED_US = 2_000


class VirtualThread(greenlet):  # type: ignore[misc]
    """Begins at once, as an event of its process. ``on_end`` gets the result, or the error that ended it.

    Without ``on_end`` an error ends the history.
    """

    def __init__(
        self,
        process: Process,
        function: Callable[[], Any],
        name: str = "",
        on_end: Callable[[Any, Exception | None], None] | None = None,
    ) -> None:
        super().__init__()
        self.process = process
        self.name = name
        self.held: list[Any] = []
        self.locks = 0
        """How many virtual locks it holds."""
        self._function = function
        self._on_end = on_end
        self.exits = False
        """The history is over."""
        self.gr_context = process.world.thread_context.copy()
        process.world.threads[self] = None
        process.after(0, self._go_on)

    @classmethod
    def current(cls) -> VirtualThread:
        thread = getcurrent()
        assert isinstance(thread, VirtualThread), "an event of the simulation waits, and not a thread"
        return thread

    def run(self, _: object) -> None:
        result: Any = None
        error: Exception | None = None
        try:
            result = self._function()
        except Exception as failure:
            if self._on_end is None:
                self.process.world.fail(failure)
            error = failure
        finally:
            self.process.world.threads.pop(self, None)
        if self._on_end is not None:
            self._on_end(result, error)

    def wait(self, awaited: Future | int) -> Any:
        """Waits for an answer, and returns its value or raises its error; or sleeps for some microseconds."""
        if isinstance(awaited, int):
            self.process.after(awaited, self._go_on)
            return self._suspend()
        awaited.then(lambda _: self.process.after(0, self._go_on))
        self._suspend()
        if awaited.error is not None:
            raise awaited.error
        return awaited.value

    def wait_among(self, waiting: deque[_Waiting], timeout_seconds: float | None) -> bool:
        """Waits until another thread takes it out of ``waiting`` and wakes it. False after the timeout."""
        entry = _Waiting(self)
        waiting.append(entry)
        if timeout_seconds is not None:
            self.process.after(max(0, round(timeout_seconds * SECOND)), lambda: entry.time_out(waiting))
        return cast(bool, self._suspend())

    def check_exit(self) -> None:
        """Raises GreenletExit if the history is over, so that it waits for nothing more while it ends."""
        if self.exits:
            raise GreenletExit

    def end(self) -> None:
        """The history is over."""
        self.exits = True
        self.parent = getcurrent()
        self.throw()

    def _suspend(self) -> Any:
        self.check_exit()
        return self.parent.switch()

    def _go_on(self, value: Any = None) -> None:
        self.parent = getcurrent()
        self.switch(value)


class _Waiting:
    """A thread that waits among others. Who takes it out wakes it."""

    __slots__ = ("_is_over", "_thread")

    def __init__(self, thread: VirtualThread) -> None:
        self._thread = thread
        self._is_over = False

    def wake(self) -> None:
        self._end(True)

    def time_out(self, waiting: deque[_Waiting]) -> None:
        if not self._is_over:
            waiting.remove(self)
            self._is_over = True
            self._thread._go_on(False)

    def _end(self, value: bool) -> None:
        self._is_over = True
        self._thread.process.after(0, lambda: self._thread._go_on(value))


class VirtualRuntime(ThreadRuntime):
    """The runtime of all virtual threads of a world."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.dice = Random(f"threads {world.seed}")
        self._held: list[Any] = []

    def monotonic(self) -> float:
        return self.world.now / SECOND

    def sleep(self, seconds: float) -> None:
        VirtualThread.current().wait(round(seconds * SECOND))

    def make_lock(self) -> threading.Lock:
        return cast("threading.Lock", VirtualLock(self))

    def make_rlock(self) -> threading.RLock:
        return cast("threading.RLock", VirtualLock(self, reentrant=True))

    def make_condition(self, lock: threading.Lock | threading.RLock) -> threading.Condition:
        return cast("threading.Condition", VirtualCondition(lock))

    def make_event(self) -> threading.Event:
        return cast("threading.Event", VirtualEvent())

    def make_queue(self) -> SimpleQueue[Any]:
        return cast("SimpleQueue[Any]", VirtualQueue())

    def held_locks(self) -> list[Any]:
        thread = getcurrent()
        return thread.held if isinstance(thread, VirtualThread) else self._held

    def preempt(self, thread: VirtualThread) -> None:
        """Lets others run before ``thread`` takes a lock. A thread with a lock goes on, so that events find it free."""
        if not thread.locks and self.dice.random() < PREEMPTED_SHARE:
            thread.wait(self.dice.randint(0, PREEMPTED_US))


class VirtualLock:
    """``threading.Lock`` or ``RLock``. An event of the simulation may take one that is free."""

    def __init__(self, runtime: VirtualRuntime, *, reentrant: bool = False) -> None:
        self._runtime = runtime
        self._reentrant = reentrant
        self._owner: greenlet | None = None
        self._count = 0
        self._waiting: deque[_Waiting] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        thread = getcurrent()
        if self._owner is thread and self._reentrant:
            self._count += 1
            return True
        if isinstance(thread, VirtualThread):
            if blocking and not thread.exits:
                self._runtime.preempt(thread)
            while self._owner is not None and not thread.exits:  # one that ends releases it again
                limit = timeout if timeout >= 0 else None
                if not blocking or not thread.wait_among(self._waiting, limit):
                    return False
            thread.locks += 1
        elif self._owner is not None:
            assert not blocking, "an event of the simulation waits for a lock"
            return False
        self._owner, self._count = thread, 1
        return True

    def release(self) -> None:
        if self._owner is not getcurrent():
            raise RuntimeError("the lock is released by a thread that does not hold it")
        self._count -= 1
        if self._count == 0:
            self._leave()

    def locked(self) -> bool:
        return self._owner is not None

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()

    def _leave(self) -> None:
        if isinstance(self._owner, VirtualThread):
            self._owner.locks -= 1
        self._owner = None
        if self._waiting:
            self._waiting.popleft().wake()

    # ---- for conditions

    def _release_save(self) -> int:
        count = self._count
        self._leave()
        return count

    def _acquire_restore(self, count: int) -> None:
        self.acquire()
        self._count = count

    def _is_owned(self) -> bool:
        return self._owner is getcurrent()


class VirtualCondition:
    """``threading.Condition`` of a virtual or a checked lock."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._waiting: deque[_Waiting] = deque()
        self.acquire, self.release, self._is_owned = lock.acquire, lock.release, lock._is_owned

    def __enter__(self) -> bool:
        return bool(self._lock.acquire())

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        count = self._lock._release_save()
        try:
            return VirtualThread.current().wait_among(self._waiting, timeout)
        finally:
            self._lock._acquire_restore(count)

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        world = VirtualThread.current().process.world
        until = None if timeout is None else world.now + round(timeout * SECOND)
        while not (result := predicate()):
            if until is not None and world.now >= until:
                break
            self.wait(None if until is None else (until - world.now) / SECOND)
        return result

    def notify(self, n: int = 1) -> None:
        if not self._is_owned():
            raise RuntimeError("a condition is notified without its lock")
        for _ in range(min(n, len(self._waiting))):
            self._waiting.popleft().wake()

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class VirtualEvent:
    """``threading.Event``."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: deque[_Waiting] = deque()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        while self._waiting:
            self._waiting.popleft().wake()

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        thread = VirtualThread.current()
        thread.check_exit()
        return self._is_set or thread.wait_among(self._waiting, timeout)


class VirtualQueue:
    """``queue.SimpleQueue``."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._waiting: deque[_Waiting] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)
        if self._waiting:
            self._waiting.popleft().wake()

    def get(self) -> Any:
        thread = VirtualThread.current()
        thread.check_exit()
        while not self._items:
            thread.wait_among(self._waiting, None)
        return self._items.popleft()
