"""A program that was installed without its extra says so."""

from __future__ import annotations

import pytest

from smq_storage.process.extras import needs_extra


def test_a_missing_distribution_names_the_extra(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, needs_extra("smq-broker", "broker"):
        import no_such_distribution  # type: ignore[import-not-found]  # noqa: F401
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "no_such_distribution is not installed" in said and "pip install '.[broker]' in a clone" in said


def test_a_mistake_of_this_project_is_not_hidden() -> None:
    with pytest.raises(ModuleNotFoundError), needs_extra("smq-broker", "broker"):
        import smq_broker.no_such_module  # type: ignore[import-not-found]  # noqa: F401
