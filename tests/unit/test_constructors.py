"""The check that lets constructors of many parameters take them by keyword."""

from __future__ import annotations

import pytest

from tools.check_constructors import check

FIELDS = "; ".join(f"{name}: int" for name in "abcde")
CALL = "\nmade = C(1, 2, 3, 4, e=5)\n"


@pytest.mark.parametrize(
    "text",
    [
        "class C:\n    def __init__(self, a, b, c, d, e): ...\n",
        "class C:\n    def __init__(self, a, b, /, c, *, d, e): ...\n",
        f"@dataclass\nclass C: {FIELDS}{CALL}",
        f"@dataclass(frozen=True)\nclass C: {FIELDS}\nmade = C(*values)\n",
    ],
)
def test_a_constructor_that_takes_many_values_by_position_is_found(text: str) -> None:
    (found,) = check([("core/smq_core/c.py", text)])
    assert (found.name, found.parameters) == ("C", 5)


@pytest.mark.parametrize(
    "text",
    [
        "class C:\n    def __init__(self, *, a, b, c, d, e): ...\n",
        "class C:\n    def __init__(self, a, *, b, c, d, e): ...\n",
        "class C:\n    def __init__(self, a, b, c, d): ...\n",
        f"@dataclass(kw_only=True)\nclass C: {FIELDS}{CALL}",
        f"@dataclass\nclass C: {FIELDS}\nmade = C(1, 2)\n",
        f"@dataclass\nclass C: {FIELDS}\nmade = data_pb2.C(a=1, b=2, c=3, d=4, e=5)\n",
    ],
)
def test_any_other_constructor_is_not(text: str) -> None:
    assert not check([("core/smq_core/c.py", text)])
