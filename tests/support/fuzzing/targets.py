"""Runs malformed inputs through one decoder. Whatever comes, it answers, or raises an error that it declares."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from smq_core.errors import SmqError
from support.fuzzing.mutator import Mutator

# What the memory of the process may grow by, whatever comes.
MAX_GROWTH_BYTES = 200 << 20


@dataclass(frozen=True, slots=True)
class Target:
    """``make`` returns an input and ``take`` gives it to the decoder. ``declared`` are the errors that it may raise.

    ``share`` is how many inputs it gets of what a cheap one gets.
    """

    name: str
    make: Callable[[Mutator], Any]
    take: Callable[[Any], object]
    declared: tuple[type[BaseException], ...] = (SmqError,)
    share: float = 1.0
    words: Sequence[str] = ()


@dataclass
class Outcome:
    """``slowest_seconds`` is the processor's time of the input that took the most."""

    target: str
    inputs: int = 0
    accepted: int = 0
    slowest_seconds: float = 0.0
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        rate = f"{self.inputs:>9,} inputs, {self.accepted:>9,} accepted, slowest {self.slowest_seconds * 1000:7.1f} ms"
        return "\n".join([f"{self.target:32} {rate}", *(f"    {it}" for it in self.failures)])


def data_target(
    name: str, samples: Sequence[bytes], take: Callable[[bytes], object], *declared: type[BaseException]
) -> Target:
    return Target(name, lambda mutator: mutator.data(samples), take, declared or (SmqError,))


def text_target(
    name: str,
    samples: Sequence[str],
    take: Callable[[str], object],
    *declared: type[BaseException],
    share: float = 1.0,
) -> Target:
    return Target(name, lambda mutator: mutator.text(samples), take, declared or (SmqError,), share)


def run(target: Target, seed: int, inputs: int) -> Outcome:
    """Stops at the third input that raises what it may not."""
    mutator, outcome = Mutator(seed, target.words), Outcome(target.name)
    for _ in range(inputs):
        given = target.make(mutator)
        outcome.inputs += 1
        began = time.process_time()
        try:
            target.take(given)
            outcome.accepted += 1
        except target.declared:
            pass
        except Exception as error:
            outcome.failures.append(f"{type(error).__name__}: {error!s:.200} for {given!r:.400}")
            if len(outcome.failures) >= 3:
                break
        outcome.slowest_seconds = max(outcome.slowest_seconds, time.process_time() - began)
    return outcome


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
