"""What a fork finds of a producer whose threads were in the middle of something."""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from smq import forks
from smq.forks import track
from smq.producer import Producer
from smq.producing.delivery_state import TableDelivery
from smq_core.errors import InvalidRequest
from support.in_memory.producer_sessions import producer_of, session
from support.in_memory.topic import TopicInMemory
from support.waiting import HANG_GUARD, eventually

# Python warns of what these tests look at.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture
def producer(driven_sessions: None) -> Iterator[Producer]:
    """One that has sent a message, which has no ack yet."""
    with producer_of(TopicInMemory()) as made:
        made.write(pa.table({"value": [b"x"]}))
        session(0).opened()
        eventually(lambda: session(0).written == [0])
        yield made
        for number in list(session(0).written):
            session(0).ack(number, number)


def exit_code_of_fork(check: Callable[[], None]) -> int:
    """That of a fork which ends after ``check``: 0, or 1 if it raises. A fork that hangs is killed."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            check()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    guard = threading.Timer(HANG_GUARD / 5, os.kill, (pid, signal.SIGKILL))
    guard.start()
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        guard.cancel()


def test_uses_in_a_fork_are_errors_although_a_thread_waits_for_an_outcome(producer: Producer) -> None:
    (state,) = producer._batcher._unresolved.all()
    with pytest.raises(TimeoutError):
        TableDelivery([state]).result(0.01)  # from now on somebody has waited
    later = producer.write(pa.table({"value": [b"y"]}))
    eventually(lambda: session(0).written == [0, 1])

    def check() -> None:
        with pytest.raises(InvalidRequest, match="is a fork"):
            producer.send(b"in the fork")
        for delivery in (TableDelivery([state]), later):
            assert isinstance(delivery.exception(0), InvalidRequest)

    assert exit_code_of_fork(check) == 0


def test_deliveries_end_in_a_fork_although_a_thread_of_the_parent_has_the_lock(producer: Producer) -> None:
    (state,) = producer._batcher._unresolved.all()
    delivery = TableDelivery([state])

    def check() -> None:
        with pytest.raises(InvalidRequest, match="is a fork"):
            delivery.result()
        assert delivery.exception() is not None

    held, forked = threading.Event(), threading.Event()

    def hold() -> None:
        with producer._engine.lock:
            held.set()
            forked.wait(HANG_GUARD)

    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    assert held.wait(HANG_GUARD)
    code = exit_code_of_fork(check)
    forked.set()
    holder.join(HANG_GUARD)
    assert code == 0


def test_what_fails_in_a_fork_does_not_keep_others_usable() -> None:
    class Broken:
        def close(self) -> None: ...

        def end_in_fork(self, error: InvalidRequest) -> None:
            raise ValueError("broken")

    class Later:
        def close(self) -> None: ...

        def use(self) -> None: ...

    class Part:
        error: InvalidRequest | None = None

        def end_in_fork(self, error: InvalidRequest) -> None:
            self.error = error

    broken, later, part = Broken(), Later(), Part()
    track(broken, broken)
    track(later, part)
    assert broken in forks._tracked

    def check() -> None:
        with pytest.raises(InvalidRequest, match="is a fork"):
            later.use()
        assert part.error is not None

    assert exit_code_of_fork(check) == 0
