"""Malformed inputs from valid ones, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

# What is at the edge of a field's type, or of what a program expects of a number.
_NUMBERS = (0, 1, 2, 63, 64, 255, 256, 1 << 15, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, (1 << 63) - 1, (1 << 64) - 1)
# Names that lead out of a folder, end a line of a log, move a cursor, or are no names.
NAMES = (
    *("", ".", "..", "../..", "/", "//", "/etc/passwd", "default/..", "../default/t", "a/b/c", "a/../b"),
    *("\x00", "t\x00", "a\nb", "a\r\nforged: line", "\x1b[2J", "\x1b]0;x\x07", "%2e%2e%2f", "．．／", "\u202e", "․․"),
    *("x" * 300, "." * 300, "x/" * 2000, "é" * 200, "😀", "a b", "'", '"', "${x}", "{{x}}", "-rf", "_index", "=x"),
)
_BYTES = (0, 1, 0x7F, 0x80, 0xFF, 0x0A, 0x1B)
# How deep a made-up message is.
_MAX_DEPTH = 3


class Mutator:
    """``words`` are strings that the tested process knows, so that some inputs get past its first checks."""

    def __init__(self, seed: int, words: Sequence[str] = ()) -> None:
        self.random = random.Random(seed)
        self.words = words

    def data(self, samples: Sequence[bytes]) -> bytes:
        """One of the samples with some changes; now and then nothing but random bytes."""
        if self.random.random() < 0.02:
            return self.random.randbytes(self.random.randrange(200))
        changed = bytearray(self.random.choice(samples))
        for _ in range(self.random.randint(1, 4)):
            self.random.choice(_CHANGES)(self.random, changed, samples)
        return bytes(changed)

    def text(self, samples: Sequence[str]) -> str:
        """The same as text. There are no lone surrogates in it: gRPC, protobuf and files decode UTF-8 strictly."""
        if self.random.random() < 0.3:
            return self._spliced(self.random.choice(samples))
        encoded = [sample.encode() for sample in samples]
        return self.data(encoded).decode(errors=self.random.choice(("replace", "ignore")))

    def message(self, kind: type[Message]) -> Message:
        """A message of this kind with any values that its fields can have."""
        return self._filled(kind(), 0)

    def _filled(self, message: Message, depth: int) -> Message:
        for field in message.DESCRIPTOR.fields:
            if self.random.random() < 0.2 or (field.message_type is not None and depth >= _MAX_DEPTH):
                continue
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                continue
            if field.is_repeated:
                values = [self._value(field, depth) for _ in range(self.random.choice((0, 1, 1, 2, 3, 17)))]
                getattr(message, field.name).extend(values)
            elif field.message_type is not None:
                getattr(message, field.name).CopyFrom(self._value(field, depth))
            else:
                setattr(message, field.name, self._value(field, depth))
        return message

    def _value(self, field: FieldDescriptor, depth: int) -> object:
        if field.message_type is not None:
            return self._filled(GetMessageClass(field.message_type)(), depth + 1)
        if field.type == FieldDescriptor.TYPE_BYTES:
            return self.random.randbytes(self.random.choice((0, 1, 32, 64, 100)))
        if field.type == FieldDescriptor.TYPE_STRING:
            return self.name()
        if field.type == FieldDescriptor.TYPE_BOOL:
            return self.random.random() < 0.5
        if field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT):
            return self.random.choice((0.0, -1.0, 1e300, float("inf"), float("nan"), 0.5))
        if field.enum_type is not None:
            return self.random.choice((0, 1, 2, 3, 99, (1 << 31) - 1))
        return self._number(field)

    def name(self) -> str:
        """A name that the process knows, or one that should not be one."""
        if self.words and self.random.random() < 0.7:
            return self.random.choice(self.words)
        return self.random.choice(NAMES)

    def _number(self, field: FieldDescriptor) -> int:
        bits = 32 if "32" in _TYPE_NAMES[field.type] else 64
        number = self.random.choice(_NUMBERS)
        if _TYPE_NAMES[field.type].startswith("TYPE_U"):
            return number & ((1 << bits) - 1)
        number &= (1 << (bits - 1)) - 1
        return self.random.choice((number, -number, -number - 1))

    def _spliced(self, sample: str) -> str:
        at = self.random.randint(0, len(sample))
        return sample[:at] + self.random.choice(NAMES) + sample[self.random.randint(at, len(sample)) :]


_TYPE_NAMES = {
    value: name for name, value in vars(FieldDescriptor).items() if name.startswith("TYPE_") and isinstance(value, int)
}

Change = Callable[[random.Random, bytearray, Sequence[bytes]], None]


def _flip(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _replace(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.choice(_BYTES)


def _truncate(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    del data[rng.randint(0, len(data)) :]


def _delete(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = rng.randint(0, len(data))
    del data[at : at + rng.randint(1, 16)]


def _repeat(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = rng.randint(0, len(data))
    data[at:at] = data[at : at + rng.randint(1, 32)] * rng.choice((1, 2, 50))


def _insert(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = rng.randint(0, len(data))
    data[at:at] = rng.choice((rng.randbytes(rng.randint(1, 8)), b"\xff\xff\xff\xff\x0f", b"\n\x1b[2J\n"))


def _splice(rng: random.Random, data: bytearray, samples: Sequence[bytes]) -> None:
    other = rng.choice(samples)
    data[rng.randint(0, len(data)) :] = other[rng.randint(0, len(other)) :]


_CHANGES: Sequence[Change] = (_flip, _replace, _truncate, _delete, _repeat, _insert, _splice)
