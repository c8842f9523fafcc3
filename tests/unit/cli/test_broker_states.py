"""What `smq broker list` and `smq top` show of processes that are not alive."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from typer.testing import CliRunner

from smq import BrokerInfo, ProblemInfo
from smq.cli.app import app
from smq.cli.broker_states import explanations, present
from smq.cli.commands import brokers as command


def broker(name: str, state: str, ended: str = "", ended_at: int | None = None) -> BrokerInfo:
    return BrokerInfo(
        name=name,
        incarnation=f"{name}-{state}",
        address="h:1",
        state=state,
        tail_bytes=0,
        memory_limit=1 << 30,
        segments=(),
        ended=ended,
        ended_at=None if ended_at is None else datetime.fromtimestamp(ended_at, UTC),
    )


KILLED = "process 7 ended (SIGKILL)"
LISTED = [
    broker("a", "recovered", KILLED, 2),
    broker("a", "gone", "process 6 ended (exit code 1)", 1),
    broker("a", "alive"),
    broker("b", "gone", "process 8 ended (exit code 0)", 3),
    broker("b", "ended", "its process had ended", 4),
    broker("c", "alive"),
]


class FakeClient:
    def admin(self) -> FakeClient:
        return self

    def problems(self) -> list[ProblemInfo]:
        return [ProblemInfo("filer", "the filer takes no writes since 10:00:00 UTC (the leader: 507)")]

    def brokers(self) -> list[BrokerInfo]:
        return LISTED

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *_: object) -> None: ...


def listed(monkeypatch: pytest.MonkeyPatch, *options: str) -> Any:
    monkeypatch.setattr(command, "client", FakeClient)
    return CliRunner().invoke(app, ["broker", "list", *options])


def test_each_broker_is_listed_once_with_the_cause_of_its_last_end(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = listed(monkeypatch)
    lines = ran.stdout.splitlines()[1:]
    assert [line.split()[:2] for line in lines] == [["a", "alive"], ["b", "ended"], ["c", "alive"]]
    assert f"{KILLED}, " in lines[0] and "its process had ended, " in lines[1] and lines[2].endswith("–")
    assert "recovered" not in ran.stderr and "ended: a process that has ended" in ran.stderr
    assert "the filer takes no writes since 10:00:00 UTC: `smq topic list`" in ran.stderr.replace("\n", " ")


def test_former_processes_are_listed_if_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = listed(monkeypatch, "--all")
    assert [line.split()[:2] for line in ran.stdout.splitlines()[1:]] == [
        ["a", "alive"],
        ["a", "recovered"],
        ["a", "gone"],
        ["b", "ended"],
        ["b", "gone"],
        ["c", "alive"],
    ]
    assert "recovered: a former process. The present one of that broker holds its journal" in ran.stderr
    assert "ended: a process that has ended" in ran.stderr and "gone: a former process" in ran.stderr
    assert "suspect" not in ran.stderr


def test_json_has_no_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not listed(monkeypatch, "-o", "json").stderr


def test_who_is_alive_needs_no_word() -> None:
    assert explanations([broker("a", "alive")]) == []
    assert present(LISTED) == [LISTED[2], LISTED[4], LISTED[5]]
