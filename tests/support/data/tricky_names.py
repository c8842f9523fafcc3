"""Names that lead out of a folder, look like others, or are not names, and requests that have them in every field."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

# What replaces one name.
PARTS = (
    *("", ".", "..", "...", "../..", "../../x", "a/..", "a/../b", "./a", "a/.", "a/b", "a/b/c", "../default/t"),
    *("/", "//", "/a", "//a", "a/", "a//b", "/etc/passwd", "default/../default/t", "\\", "..\\..", "a\\b", "C:\\x"),
    *(
        "\x00",
        "a\x00b",
        "a\x00.json",
        "a\nb",
        "a\r\nb",
        "\t",
        "\x1b[2J",
        "\x7f",
        "\x85",
        "\u2028",
        "\u202ea",
        "\ufeffa",
    ),
    *("%2e%2e", "%2e%2e%2f", "..%2f", "%2F", "a%2Fb", "%00", "%252e", "%5c", "%c0%ae%c0%ae", "a?b", "a#b", "a*", "~"),
    *("．．", "․․", "‥", "…", "a／b", "a∕b", "a⁄b", "fliɡhts", "ﬂights", "flights\u200b", "Ａ"),
    *(unicodedata.normalize(form, "flüge") for form in ("NFC", "NFD")),
    *("a.", "a ", " a", ".a", ".json", "-a", "a-", "A", "FLIGHTS", "Flights", "con", "a:b", "a;b", "a|b", 'a"b', "a'b"),
    *("_current.json", "_topic.json", "_layout.json", "_publishes.json", "_index", "_groups", "_producers", "_pins"),
    *("_file_lists", "_compacted", "_uploads", "_large_values", "_deleted", "_format.json", "_clock.json", "_probe"),
    *("=a", "@", "a@b", "${x}", "$(x)", "`x`", "{}", "*", "--help", "x" * 1024, "x" * 65536, "../" * 400, "é" * 128),
)

# The same for names of topics, which have two parts.
NAMES = (*PARTS, *(f"default/{part}" for part in PARTS), *(f"{part}/t" for part in PARTS))

# One of each kind, for what takes its time.
FEW = (
    *("", ".", "..", "../../x", "a/../b", "/a", "a/", "a//b", "a/b/c", "..\\x", "a\x00b", "a\nb", "%2e%2e%2fx", "．．"),
    *(unicodedata.normalize("NFD", "flüge"), "A", "a.", "_layout.json", "=a", "x" * 65536),
)


def requests(kind: type[Message], known: Mapping[str, str], tricks: tuple[str, ...]) -> Iterator[tuple[str, Message]]:
    """A field of names in requests of this kind and the request, for each field and trick.

    The other fields have what is ``known`` by their names.
    """
    for path in _text_fields(kind.DESCRIPTOR):
        for trick in tricks:
            request = _filled(kind(), known)
            *outer, last = path
            inner = request
            for field in outer:
                value = getattr(inner, field.name)
                inner = value[0] if field.is_repeated else value
            if last.is_repeated:
                del getattr(inner, last.name)[:]
                getattr(inner, last.name).append(trick)
            else:
                setattr(inner, last.name, trick)
            yield ".".join(it.name for it in path), request


def _text_fields(descriptor: object) -> Iterator[tuple[FieldDescriptor, ...]]:
    for field in descriptor.fields:  # type: ignore[attr-defined]
        if field.type == FieldDescriptor.TYPE_STRING:
            yield (field,)
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            yield from ((field, *inner) for inner in _text_fields(field.message_type))


def _filled(message: Message, known: Mapping[str, str]) -> Message:
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            inner = _filled(GetMessageClass(field.message_type)(), known)
            if field.is_repeated:
                value.append(inner)
            else:
                value.CopyFrom(inner)
        elif field.type == FieldDescriptor.TYPE_STRING and field.name in known:
            if field.is_repeated:
                value.append(known[field.name])
            else:
                setattr(message, field.name, known[field.name])
    return message
