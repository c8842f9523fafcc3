"""How a topic's schema may change: the rules by which one version follows another.

========================================  =====================================================
a new column                              if it is nullable and its name was never used before
a wider integer of the same signedness    not for the key column, because its hash would change
``float32`` to ``float64``                not for the key column
a column becomes nullable                 always
a column is dropped                       if it is nullable; its name is never used again
========================================  =====================================================

Everything else is refused. Columns are matched by name. A version lists the columns that the version before had in the
same order, and new ones after them, so that another order in the spec changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from smq_core.model.entities import Column, Layout, TopicSchema

_WIDENINGS = (
    ("int8", "int16", "int32", "int64"),
    ("uint8", "uint16", "uint32", "uint64"),
    ("float32", "float64"),
)

# How many changed columns a decision names.
MAX_SUMMARY = 4


def can_widen(old: str, new: str) -> bool:
    """Whether the type ``new`` is wider than ``old`` and represents all of its values."""
    return any(old in types and new in types and types.index(old) < types.index(new) for types in _WIDENINGS)


def violations(old: TopicSchema, new: Sequence[Column], key: str | None) -> list[str]:
    """Why these columns cannot follow that version: one message for each column, for the user; empty if they can.

    ``key`` names the key column, if the topic has one.
    """
    if not old.columns or not new:
        if not old.columns and not new:
            return []
        created, problem = ("with", "cannot lose its schema") if old.columns else ("without", "cannot get a schema")
        return [f"a topic that was created {created} one {problem}: make a topic of another name"]
    before, after = {c.name: c for c in old.columns}, {c.name: c for c in new}
    problems = (
        *(_drop_problem(column, key) for name, column in before.items() if name not in after),
        *(_change_problem(before[name], column, key) for name, column in after.items() if name in before),
        *(_new_problem(column, old.dropped) for name, column in after.items() if name not in before),
    )
    return [problem for problem in problems if problem is not None]


def evolve(old: TopicSchema, new: Sequence[Column], key: str | None, generation: int = 0) -> TopicSchema:
    """The version that follows ``old``; ``old`` itself if the columns are the same.

    It is ``old`` as well if these columns come from an older ``generation`` of the desired state than ``old``.
    Raises ValueError, with a message for the user, if the columns cannot follow.
    """
    if is_stale(old, generation):
        return old
    if problems := violations(old, new, key):
        raise ValueError("; ".join(problems))
    after = {column.name: column for column in new}
    known = {column.name for column in old.columns}
    columns = tuple(
        chain(
            (after[column.name] for column in old.columns if column.name in after),
            (column for column in new if column.name not in known),
        )
    )
    if columns == old.columns:
        return old
    dropped = tuple(column.name for column in old.columns if column.name not in after)
    return TopicSchema(old.version + 1, columns, old.dropped + dropped, generation)


def is_stale(newest: TopicSchema, generation: int) -> bool:
    """Whether the desired state of this generation is older than the one that the newest schema comes from.

    A leader may read such a state, or wake up with it. What it lacks was not dropped by a user.
    """
    return 0 < generation < newest.generation


def difference(old: Sequence[Column], new: Sequence[Column]) -> list[str]:
    """What differs between two lists of columns, a message for each column; empty if only their order differs."""
    before, after = {c.name: c for c in old}, {c.name: c for c in new}
    found = [f"column {name!r} ({describe(c)}) is gone" for name, c in before.items() if name not in after]
    for name, column in after.items():
        if name not in before:
            found.append(f"column {name!r} ({describe(column)}) is new")
        elif before[name] != column:
            found.append(f"column {name!r} is {describe(column)}, was {_former(before[name], column)}")
    return found


def summary(history: Sequence[TopicSchema], old: int) -> str:
    """What the newest version changes for a segment of version ``old``, in a line."""
    newest = history[-1]
    before = next((it.columns for it in history if it.version == old), ())
    changes = difference(before, newest.columns)
    more = f" and {len(changes) - MAX_SUMMARY} more" if len(changes) > MAX_SUMMARY else ""
    return f"schema version {newest.version}: {'; '.join(changes[:MAX_SUMMARY])}{more}"


def describe(column: Column) -> str:
    """Type and nullability, such as ``int32`` or ``string, nullable``."""
    return f"{column.type}, nullable" if column.nullable else column.type


def _former(before: Column, now: Column) -> str:
    """As ``describe``; if only the nullability differs, it says so."""
    return "not nullable" if before.type == now.type and now.nullable else describe(before)


def schema_history(layout: Layout | None, stored: Sequence[Column]) -> tuple[TopicSchema, ...]:
    """The versions of a topic's schema that its segments have, oldest first, and the newest one at the end.

    ``stored`` has the stored topic's columns. They are version 0 if the layout, of a former release or of a topic
    without a schema, has no versions.
    """
    if layout is not None and layout.schemas:
        return layout.schemas
    return (TopicSchema(0, tuple(stored)),)


def newest_schema(layout: Layout | None, stored: Sequence[Column]) -> TopicSchema:
    """The version that new segments have. ``stored`` is as in ``schema_history``."""
    return schema_history(layout, stored)[-1]


def schema_of(version: int, layout: Layout | None, stored: Sequence[Column]) -> TopicSchema:
    """The schema of that version. ``stored`` is as in ``schema_history``. Raises KeyError if no segment has it."""
    for schema in schema_history(layout, stored):
        if schema.version == version:
            return schema
    raise KeyError(f"the history of the topic's schema has no version {version}")


def _drop_problem(column: Column, key: str | None) -> str | None:
    if column.name == key:
        return f"column {column.name!r} is the key: it cannot be dropped"
    if not column.nullable:
        return f"column {column.name!r} is not nullable: make it nullable first, and drop it in a later change"
    return None


def _new_problem(column: Column, dropped: Sequence[str]) -> str | None:
    if column.name in dropped:
        return f"column {column.name!r} was dropped before, and its name cannot be used again: choose another name"
    if not column.nullable:
        return f"column {column.name!r} is new, so older messages have no value for it: make it nullable"
    return None


def _change_problem(old: Column, new: Column, key: str | None) -> str | None:
    if old.type != new.type:
        if not can_widen(old.type, new.type):
            return (
                f"column {old.name!r} cannot change from {old.type} to {new.type}: only a wider integer of the same "
                "sign and float32 to float64 are possible, so add a column of another name"
            )
        if old.name == key:
            return f"column {old.name!r} is the key: its type stays {old.type}, because its hash would change"
    if old.nullable and not new.nullable:
        return f"column {old.name!r} is nullable and stays so, because older messages may have no value for it"
    return None
