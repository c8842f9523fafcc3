"""What is said when there are fewer brokers than replicas."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from smq.admin import AppliedTopic
from smq.cli import broker_shortage
from smq.cli.app import app
from smq.cli.broker_shortage import drain_shortage, shortage, warn_of_drain, warn_of_manifest
from smq.cli.commands import brokers, create, topic_changes
from smq_core.errors import Unavailable

MANIFEST = "apiVersion: seaweedmq.io/v1alpha1\nkind: Topic\nmetadata: {{name: t}}\nspec: {{{}}}\n"


class FakeAdmin:
    """Brokers by state, and topics by the number of replicas of their segments."""

    def __init__(self, brokers: dict[str, str], topics: dict[str, int] | None = None) -> None:
        self._brokers, self._topics = brokers, topics or {}

    def brokers(self) -> list[Any]:
        return [SimpleNamespace(name=name, state=state) for name, state in self._brokers.items()]

    def topics(self) -> list[Any]:
        return [topic(name, replicas) for name, replicas in self._topics.items()]

    def apply(self, manifest: str, *, preview: bool = False) -> AppliedTopic:
        return AppliedTopic(topic="default/t", result="created", after=manifest)

    def drain(self, broker: str) -> None: ...

    def admin(self) -> FakeAdmin:
        return self

    def __enter__(self) -> FakeAdmin:
        return self

    def __exit__(self, *_: object) -> None: ...


def topic(name: str, replicas: int, successors: tuple[str, ...] = ()) -> Any:
    segment = SimpleNamespace(brokers=tuple(f"b{n}" for n in range(replicas)), successors=successors)
    return SimpleNamespace(name=f"default/{name}", segments=(segment,))


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    printed: list[str] = []
    monkeypatch.setattr(broker_shortage, "print_warning", printed.append)
    return printed


@pytest.mark.parametrize(
    ("module", "line"),
    [
        (create, ["topic", "create", "t", "--replicas", "7"]),
        (topic_changes, ["apply", "-f", "-"]),
        (brokers, ["broker", "drain", "a", "--no-wait"]),
    ],
    ids=["create", "apply", "drain"],
)
def test_the_commands_warn_and_do_it_all_the_same(
    module: ModuleType, line: list[str], warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "client", lambda **_: FakeAdmin({"a": "alive", "b": "alive"}, {"other": 2}))
    ran = CliRunner().invoke(app, line, input=MANIFEST.format("replicas: 7"))
    assert ran.exit_code == 0 and ("created" in ran.stdout or "draining" in ran.stdout)
    assert len(warnings) == 1


@pytest.mark.parametrize(
    ("replicas", "brokers", "says"),
    [
        (2, 2, ""),
        (1, 0, ""),
        (7, 2, "the topic has 7 replicas, but 2 brokers are alive: segments have 2 replicas until there are more"),
        (2, 1, "but 1 broker is alive: segments have 1 replica, and acks wait for the filer, until"),
        (2, 0, "no broker is alive: it accepts messages when one starts"),
    ],
)
def test_the_consequence_for_a_topic(replicas: int, brokers: int, says: str) -> None:
    found = shortage(replicas, brokers)
    assert says in found and bool(says) == bool(found)


def test_a_manifest_with_more_replicas_than_living_brokers_is_warned_of(warnings: list[str]) -> None:
    admin: Any = FakeAdmin({"a": "alive", "b": "alive", "c": "draining", "d": "gone"})
    warn_of_manifest(admin, MANIFEST.format("replicas: 2"))
    warn_of_manifest(admin, MANIFEST.format("replicas: 3, durability: Stored"))
    assert not warnings
    warn_of_manifest(admin, MANIFEST.format("replicas: 3"))
    (warning,) = warnings
    assert warning.startswith("the topic has 3 replicas, but 2 brokers are alive") and "topic describe t" in warning


def test_a_leader_that_does_not_answer_the_question_fails_no_command(warnings: list[str]) -> None:
    class Away:
        def brokers(self) -> list[Any]:
            raise Unavailable("no leader")

    admin: Any = Away()
    warn_of_manifest(admin, MANIFEST.format("replicas: 3"))
    assert not warnings


def test_a_drain_that_leaves_too_few_brokers_is_warned_of(warnings: list[str]) -> None:
    admin: Any = FakeAdmin({"a": "alive", "b": "alive", "c": "suspect"}, {"two": 2, "one": 1})
    warn_of_drain(admin, "a")
    assert warnings == [
        "only 1 other broker can take the replicas of two: segments have 1 replica, and acks wait for the filer, until "
        "there are more brokers. `smq broker undrain a` brings it back"
    ]


def test_a_drain_with_enough_other_brokers_is_not(warnings: list[str]) -> None:
    admin: Any = FakeAdmin({"a": "alive", "b": "alive", "c": "alive"}, {"two": 2})
    warn_of_drain(admin, "a")
    assert not warnings
    admin = FakeAdmin({"a": "alive"}, {"two": 2})
    warn_of_drain(admin, "a")
    warn_of_drain(admin, "nobody")
    assert not warnings, "the leader refuses both"
    assert not drain_shortage([topic("sealing", 3, successors=("s",))], 2), "its successors count"
    assert "of t0, t1, t2, t3, t4 and 2 more: segments have 2 replicas" in drain_shortage(
        [topic(f"t{n}", 3) for n in range(7)], 2
    )
