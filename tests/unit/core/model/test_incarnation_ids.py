from __future__ import annotations

import pytest

from smq_core.model.incarnation_ids import PodIncarnation, format_incarnation, parse_incarnation

POD = "0f8fad5b-d9cb-469f-a165-70867728950e"


def test_an_incarnation_says_which_pod_and_when() -> None:
    name = format_incarnation(POD, 1_700_000_000, "0123abcd")
    assert len(name) <= 64
    assert parse_incarnation(name) == PodIncarnation(POD, 1_700_000_000)


def test_any_other_is_opaque() -> None:
    assert parse_incarnation("5e884898da28047151d0e56f8dc62927") is None
    assert parse_incarnation(f"{POD}.1.0123abcd.") is None


def test_what_is_no_uid_is_refused() -> None:
    with pytest.raises(ValueError, match=r"metadata\.uid"):
        format_incarnation("broker-1", 1, "0123abcd")
