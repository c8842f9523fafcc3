"""The steps of a shutdown."""

from __future__ import annotations

from smq_storage.process.shutdown_steps import Shutdown


def fail() -> None:
    raise ValueError("broken by the test")


def test_an_error_that_cannot_be_reported_ends_no_shutdown() -> None:
    def report(step: str, error: Exception) -> None:
        raise OSError("the terminal is gone")

    done: list[str] = []
    shutdown = Shutdown(report)
    shutdown.run("first", fail)
    shutdown.run("second", lambda: done.append("second"))
    assert done == ["second"]
    assert shutdown.failed == "first: broken by the test; reporting first: the terminal is gone"
