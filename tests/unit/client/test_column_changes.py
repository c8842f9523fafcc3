"""Changes of columns as a user states them."""

from __future__ import annotations

import pytest

from smq.column_changes import ColumnChanges
from smq_core.errors import InvalidRequest
from smq_core.model.entities import Column

COLUMNS = (Column("id", "int32"), Column("delay", "float32"), Column("note", "string", nullable=True))


def test_all_changes_of_one_command_are_applied_together() -> None:
    changes = ColumnChanges({"gate": "uint8"}, ["note"], {"id": "int64", "delay": "float64"}, ["delay"])
    assert changes.apply(COLUMNS) == (
        Column("id", "int64"),
        Column("delay", "float64", nullable=True),
        Column("gate", "uint8", nullable=True),
    )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (ColumnChanges(drop=["nothing"]), "there is no column 'nothing'. The columns are id, delay, note"),
        (ColumnChanges(widen={"x": "int64"}, make_nullable=["x", "y"]), "no column 'x'; there is no column 'y'"),
        (ColumnChanges(add={"note": "string"}), "column 'note' is there already"),
        (ColumnChanges(drop=["note"], widen={"note": "int64"}), "'note' is to be dropped and changed"),
        (ColumnChanges(add={"note": "string"}, drop=["note"]), "column 'note' is there already"),
    ],
)
def test_what_contradicts_the_columns_is_refused(changes: ColumnChanges, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        changes.apply(COLUMNS)
