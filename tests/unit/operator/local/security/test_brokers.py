"""What broker processes of a leader with and without security get. The processes are real."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from smq_core.access.modes import SecurityMode
from smq_operator.local.broker_processes import BrokerProcesses
from smq_operator.local.broker_records import read_records
from smq_operator.local.security.broker_credentials import BrokerCredentials
from smq_operator.security.identities.tokens import BrokerTokens
from support.waiting import HANG_GUARD, wait_until

SCRIPT = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("started", flush=True)
while True:
    time.sleep(0.01)
"""
DISABLED, PERMISSIVE, REQUIRED = SecurityMode
TOKENS = BrokerTokens(b"k" * 32, lambda _: False)


def processes(folder: Path, mode: SecurityMode = SecurityMode.REQUIRED) -> BrokerProcesses:
    credentials = None
    if mode.knows_callers:
        credentials = BrokerCredentials(folder / "tokens", folder / "ca.crt", TOKENS, mode)
    made = BrokerProcesses(
        folder=folder,
        leader="l:1",
        command=[sys.executable, "-c", SCRIPT],
        environment={},
        changed=lambda: None,
        credentials=credentials,
    )
    made.adopt()
    return made


def started(folder: Path, count: int = 1) -> bool:
    path = folder / "logs" / "b.log"
    return path.exists() and path.read_text().count("started") >= count


def environment(folder: Path) -> dict[str, str]:
    (record,) = read_records(folder / "brokers")[0]
    lines = Path(f"/proc/{record.pid}/environ").read_text().split("\0")
    return dict(line.split("=", 1) for line in lines if line)


def tokens(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "tokens").iterdir())


async def test_each_incarnation_has_a_token_while_it_lives(tmp_path: Path) -> None:
    running = processes(tmp_path)
    running.set_desired(["b"])
    await wait_until(lambda: started(tmp_path))
    given, incarnation = environment(tmp_path), running.current_incarnation("b")
    assert given["SMQ_CA_FILE"] == str(tmp_path / "ca.crt")
    assert (await TOKENS.verify(Path(given["SMQ_TOKEN_FILE"]).read_text())).incarnation == incarnation
    os.kill(read_records(tmp_path / "brokers")[0][0].pid or 0, signal.SIGKILL)
    await wait_until(lambda: started(tmp_path, 2))
    assert tokens(tmp_path) == [f"{running.current_incarnation('b')}.token"] != [f"{incarnation}.token"]
    await running.stop(HANG_GUARD)
    assert tokens(tmp_path) == []


async def test_a_broker_of_an_open_release_inherits_no_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SMQ_CA_FILE", "/mine/ca.crt")
    monkeypatch.setenv("SMQ_TOKEN_FILE", "/mine/token")
    monkeypatch.setenv("SMQ_PERMISSIVE", "true")
    running = processes(tmp_path, DISABLED)
    running.set_desired(["b"])
    await wait_until(lambda: started(tmp_path))
    assert [environment(tmp_path)[f"SMQ_{it}"] for it in ("CA_FILE", "TOKEN_FILE", "PERMISSIVE")] == ["", "", ""]
    await running.stop(HANG_GUARD)


async def test_a_permissive_leader_starts_permissive_brokers(tmp_path: Path) -> None:
    running = processes(tmp_path, PERMISSIVE)
    running.set_desired(["b"])
    await wait_until(lambda: started(tmp_path))
    assert environment(tmp_path)["SMQ_PERMISSIVE"] == "true" and environment(tmp_path)["SMQ_CA_FILE"]
    await running.stop(HANG_GUARD)


@pytest.mark.parametrize(
    "before, now",
    [
        (REQUIRED, REQUIRED),
        (PERMISSIVE, PERMISSIVE),
        (DISABLED, PERMISSIVE),
        (PERMISSIVE, REQUIRED),
        (REQUIRED, DISABLED),
    ],
)
@pytest.mark.parametrize("recorded", [True, False])
async def test_a_leader_adopts_brokers_that_can_report_to_it(
    tmp_path: Path, before: SecurityMode, now: SecurityMode, recorded: bool
) -> None:
    first = processes(tmp_path, before)
    first.set_desired(["b"])
    await wait_until(lambda: started(tmp_path))
    incarnation = first.current_incarnation("b")
    assert incarnation is not None
    first.detach()
    if not recorded:
        (tmp_path / "brokers" / "b.json").unlink()
    second = processes(tmp_path, now)
    second.set_desired(["b"])
    if before == now:
        assert second.current_incarnation("b") == incarnation and second.termination_proof(incarnation) is None
        assert tokens(tmp_path) == [f"{incarnation}.token"]
    else:
        await wait_until(lambda: second.termination_proof(incarnation) is not None)
        await wait_until(lambda: started(tmp_path, 2))
    await second.stop(HANG_GUARD)
