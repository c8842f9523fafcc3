"""The errors of wrong commands, and of commands without a leader."""

from __future__ import annotations

import socket

import pytest

from support.processes.cli import smq


@pytest.fixture
def nowhere() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.mark.parametrize("command", ["topic list", "publish t", "consume t", "top", "apply -f -"])
def test_without_a_leader_the_error_names_the_address_and_how_to_start_one(nowhere: str, command: str) -> None:
    manifest = "apiVersion: seaweedmq.io/v1alpha1"

    ran = smq("--leader", nowhere, *command.split(), stdin=manifest)

    assert ran.code == 1 and ran.out == ""
    assert f"no leader at {nowhere}: connection refused; is `smq dev` running?" in ran.err
    assert "SMQ_LEADER" in ran.err and "Traceback" not in ran.err


@pytest.mark.slow
def test_the_environment_names_the_leader_and_the_flag_wins(nowhere: str) -> None:
    assert f"no leader at {nowhere}:" in smq("topic", "list", leader=nowhere).err
    assert "no leader at 127.0.0.1:1:" in smq("--leader", "127.0.0.1:1", "topic", "list", leader=nowhere).err


def test_an_address_that_is_none_is_refused() -> None:
    ran = smq("--leader", "localhost", "topic", "list")

    assert ran.code == 1 and "host:port" in ran.err


@pytest.mark.slow
@pytest.mark.parametrize("line", ["nonsense", "topic list --nonsense", "consume", "topic describe"])
def test_a_wrong_command_line_is_exit_code_2(line: str) -> None:
    ran = smq(*line.split())

    assert ran.code == 2 and "Usage" in ran.err and "Traceback" not in ran.err


@pytest.mark.slow
def test_version_and_help() -> None:
    assert smq("--version").out.startswith("smq ")
    assert "keyspace" in smq("top", "--help").out


def test_a_manifest_that_is_not_there(nowhere: str) -> None:
    ran = smq("--leader", nowhere, "apply", "-f", "no-such.yaml")

    assert ran.code == 1 and ran.err == "smq: no-such.yaml: No such file or directory\n"
