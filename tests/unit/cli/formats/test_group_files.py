"""What `smq group import` reads, and how its errors name it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from smq.cli.commands.groups import _read_export
from smq_core.errors import InvalidRequest


def test_standard_input_is_named_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("nonsense"))
    with pytest.raises(InvalidRequest, match=r"^standard input is not what `smq group export` prints"):
        _read_export("-")


def test_a_file_is_named_by_its_path(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text('{"positions": {"s-0-8-0": -1}}')
    with pytest.raises(InvalidRequest, match=f"^{file} is not what"):
        _read_export(str(file))
    file.write_text('{"positions": {"s-0-8-0": 1}}')
    assert _read_export(str(file)) == {"positions": {"s-0-8-0": 1}}
