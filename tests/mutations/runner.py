"""Runs mutations: each is applied alone to a copy of the packages, and its tests run against that copy.

The tests themselves come from the checkout. ``PYTHONPATH`` puts the copy before the installed packages.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from queue import SimpleQueue
from types import MappingProxyType

from .mutation import Mutation, StaleMutation

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("core", "storage", "proto", "broker", "operator", "client", "spark")

# Seconds for which a test waits for what a mutation may have made impossible.
HANG_GUARD = "20"

_ENDED_WITH = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
_TESTS_FAILED = 1


class Outcome(Enum):
    CAUGHT = "caught"
    NOT_CAUGHT = "NOT CAUGHT"
    STALE = "STALE"
    HUNG = "HUNG"
    BROKEN = "BROKEN"


@dataclass(frozen=True, slots=True)
class Result:
    """``details`` are the failed tests of a mutation that was caught, otherwise what went wrong."""

    mutation: Mutation
    outcome: Outcome
    seconds: float
    details: tuple[str, ...]


class PackagesCopy:
    """A copy of the packages, in which one mutation after the other is applied and taken back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for package in PACKAGES:
            shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
        where = self.python("-c", "import smq; print(smq.__file__)", timeout=60).stdout.strip()
        if not Path(where).is_relative_to(folder):
            raise RuntimeError(f"tests would import {where} and not the copy in {folder}")

    def python(
        self, *arguments: str, timeout: float, variables: Mapping[str, str] = MappingProxyType({})
    ) -> subprocess.CompletedProcess[str]:
        """Runs Python in the checkout with the copied packages. Raises TimeoutExpired."""
        environment = {**os.environ, **variables}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # packages that are compiled once import in half the time
        environment["PYTHONPATH"] = os.pathsep.join(str(self.folder / package) for package in PACKAGES)
        environment["HYPOTHESIS_STORAGE_DIRECTORY"] = str(self.folder / "hypothesis")
        command = [sys.executable, *arguments]
        # In its own session, so that processes which a hanging test has started end with it.
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=timeout)
        except BaseException:
            os.killpg(process.pid, 9)
            process.wait()
            raise
        return subprocess.CompletedProcess(command, process.returncode, output)

    def pytest(self, *arguments: str, timeout: float, **variables: str) -> subprocess.CompletedProcess[str]:
        options = ("-q", "--tb=no", "-rfE", "-p", "no:cacheprovider", "--hypothesis-seed=0")
        return self.python("-m", "pytest", *options, *arguments, timeout=timeout, variables=variables)

    def run(self, mutation: Mutation, timeout: float) -> Result:
        """Applies the mutation, runs its tests and takes it back."""
        started = time.monotonic()
        try:
            original = mutation.apply(self.folder)
        except StaleMutation as error:
            return Result(mutation, Outcome.STALE, 0, (str(error),))
        try:
            self._forget_bytecode(mutation)
            outcome, details = self._judge(mutation, timeout)
        finally:
            (self.folder / mutation.file).write_text(original)
            self._forget_bytecode(mutation)
        return Result(mutation, outcome, time.monotonic() - started, details)

    def _judge(self, mutation: Mutation, timeout: float) -> tuple[Outcome, tuple[str, ...]]:
        try:
            ended = self.pytest(*mutation.caught_by, timeout=timeout, SMQ_TEST_HANG_GUARD=HANG_GUARD)
        except subprocess.TimeoutExpired:
            return Outcome.HUNG, (f"its tests did not end within {timeout:.0f} s",)
        if ended.returncode not in (0, _TESTS_FAILED):
            return Outcome.BROKEN, (f"pytest ended with {ended.returncode}:", *ended.stdout.splitlines()[-5:])
        failed = failed_tests(ended.stdout)
        if missed := [test for test in mutation.caught_by if not any(is_of(one, test) for one in failed)]:
            return Outcome.NOT_CAUGHT, tuple(f"{test} passes" for test in missed)
        return Outcome.CAUGHT, failed

    def _forget_bytecode(self, mutation: Mutation) -> None:
        """Bytecode is recognised as old by the time in seconds, which a quick change leaves as it was."""
        Path(importlib.util.cache_from_source(str(self.folder / mutation.file))).unlink(missing_ok=True)


def failed_tests(output: str) -> tuple[str, ...]:
    """The node ids of failed tests, also of those whose fixtures failed, from pytest's summary."""
    return tuple(dict.fromkeys(it[1] for it in _ENDED_WITH.finditer(output) if "::" in it[1]))


def is_of(failed: str, named: str) -> bool:
    """Whether the failed test is the named one, one of its parameters, or in the named file."""
    return failed == named or failed.startswith((f"{named}[", f"{named}::"))


def failing_without_mutation(copy: PackagesCopy, mutations: Sequence[Mutation], workers: int) -> str:
    """pytest's last lines if a named test fails without a mutation or does not exist, otherwise empty."""
    tests = dict.fromkeys(test for mutation in mutations for test in mutation.caught_by)
    ended = copy.pytest("-n", str(workers), "--dist", "loadfile", *tests, timeout=1800)
    if ended.returncode not in (0, _TESTS_FAILED):
        ended = copy.pytest("--collect-only", *tests, timeout=1800)  # says what is missing, which xdist does not
    return "" if ended.returncode == 0 else "\n".join(ended.stdout.splitlines()[-30:])


def run_all(copies: Sequence[PackagesCopy], mutations: Sequence[Mutation], timeout: float) -> Iterator[Result]:
    """The results as they come; as many mutations run at once as there are copies."""
    idle: SimpleQueue[PackagesCopy] = SimpleQueue()
    for copy in copies:
        idle.put(copy)

    def run(mutation: Mutation) -> Result:
        copy = idle.get()
        try:
            return copy.run(mutation, timeout)
        finally:
            idle.put(copy)

    with ThreadPoolExecutor(len(copies)) as pool:
        runs = [pool.submit(run, mutation) for mutation in mutations]
        try:
            for done in as_completed(runs):
                yield done.result()
        finally:
            for waiting in runs:
                waiting.cancel()
