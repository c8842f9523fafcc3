"""What `smq broker list` and `smq top` show of processes that are not alive."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from smq import BrokerInfo
from smq.cli.app import app
from smq.cli.broker_states import explanations, present
from smq.cli.commands import brokers as command


def broker(name: str, state: str) -> BrokerInfo:
    return BrokerInfo(name, f"{name}-{state}", "h:1", state, 0, 1 << 30, ())


LISTED = [broker("a", "recovered"), broker("a", "alive"), broker("b", "gone"), broker("b", "ended")]


class FakeClient:
    def admin(self) -> FakeClient:
        return self

    def brokers(self) -> list[BrokerInfo]:
        return LISTED

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *_: object) -> None: ...


def listed(monkeypatch: pytest.MonkeyPatch, *options: str) -> Any:
    monkeypatch.setattr(command, "client", FakeClient)
    return CliRunner().invoke(app, ["broker", "list", *options])


def test_the_list_ends_with_former_processes_and_says_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = listed(monkeypatch)
    assert [line.split()[:2] for line in ran.stdout.splitlines()[1:]] == [
        ["a", "alive"],
        ["b", "ended"],
        ["a", "recovered"],
        ["b", "gone"],
    ]
    assert "recovered: a former process. The present one of that broker holds its journal" in ran.stderr
    assert "ended: a process that has ended" in ran.stderr and "gone: a former process" in ran.stderr
    assert "suspect" not in ran.stderr


def test_json_has_no_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not listed(monkeypatch, "-o", "json").stderr


def test_who_is_alive_needs_no_word() -> None:
    assert explanations([broker("a", "alive")]) == []
    assert present(LISTED) == [LISTED[1], LISTED[3]]
