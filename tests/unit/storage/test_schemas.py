"""The types that a topic's columns can have."""

from __future__ import annotations

import pytest

from smq_storage.chunks.schemas import arrow_type


@pytest.mark.parametrize("name", ["flot64", "int", "decimal128(50, 1)", "decimal128(3, 4)", "list<nope>", "", "map"])
def test_unknown_types_are_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(ValueError, match=r"float64|precision"):
        arrow_type(name)
