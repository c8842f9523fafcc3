"""Names and texts from outside are short and harmless on a terminal."""

import pytest

from smq_core.errors import InvalidRequest
from smq_core.model.names import MAX_NAME_LENGTH, bounded, check_labels, check_name, shown

ESCAPE = "\x1b[2J"


@pytest.mark.parametrize("name", ["", "x" * (MAX_NAME_LENGTH + 1), ESCAPE, "a\nb", "a\u202eb", "\x00"])
def test_a_name_is_printable_and_not_too_long(name: str) -> None:
    with pytest.raises(InvalidRequest, match="a name has 1 to 128 printable characters") as caught:
        check_name("a name", name)
    assert caught.value.message.isprintable() and len(caught.value.message) < 200


def test_names_of_any_language_are_accepted() -> None:
    check_name("a name", "Größe 順序 x" + "x" * 100)
    check_labels([("a zone", ""), ("a node", "n1")])
    with pytest.raises(InvalidRequest, match="a zone has"):
        check_labels([("a node", "n1"), ("a zone", ESCAPE)])


def test_a_text_is_cut_and_escaped_but_keeps_its_lines() -> None:
    assert bounded("two\nlines") == "two\nlines"
    assert bounded(f"a{ESCAPE}b\r\u202e") == r"a\x1b[2Jb\r\u202e"
    assert len(bounded("x" * 10_000_000)) == 1000 and bounded("x" * 1001).endswith("x…")
    assert len(bounded("\x1b" * 999)) == 1000, "escapes count too"


class Unquotable:
    def __repr__(self) -> str:
        return "y" * 10_000


@pytest.mark.parametrize(
    "value",
    ["x" * 10**7, ["x" * 10**6] * 1000, {"a": ["b"] * 10**6}, 10**5000, 1 << 100_000, Unquotable(), b"x" * 10**6],
    ids=["text", "list", "mapping", "decimal", "binary", "object", "bytes"],
)
def test_a_quoted_value_is_short(value: object) -> None:
    assert 0 < len(shown(value)) <= 60


def test_a_short_value_is_quoted_as_it_is() -> None:
    assert [shown(it) for it in ("a'b", 7, None, [1, "x"])] == ['"a\'b"', "7", "None", "[1, 'x']"]
