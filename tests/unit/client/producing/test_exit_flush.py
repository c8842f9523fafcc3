"""What is flushed when a program ends."""

from __future__ import annotations

from smq.producing.exit_flush import _OpenProducers


class FakeOpen:
    flushes = 0

    def flush_at_exit(self) -> None:
        self.flushes += 1


def test_each_is_flushed_once_although_multiprocessing_ends_the_program_too() -> None:
    opened = _OpenProducers()
    one = FakeOpen()
    opened.add(one)
    opened.flush()
    opened.flush()
    assert one.flushes == 1
