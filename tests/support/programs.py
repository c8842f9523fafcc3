"""Loads programs of the tests that are no importable modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def load_chaos_program(name: str) -> ModuleType:
    """The module ``tests/chaos/<name>.py``, without running it as a program."""
    path = Path(__file__).parents[1] / "chaos" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"chaos_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
