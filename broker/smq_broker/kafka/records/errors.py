"""Why a record batch is refused, with the code that Kafka's clients expect for it."""

from __future__ import annotations

from typing import ClassVar


class RecordError(Exception):
    """``error_code`` is that of a response. Nothing of the batch may be appended."""

    error_code: ClassVar[int]

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class CorruptRecord(RecordError):
    """The bytes have changed on their way. A client sends them again."""

    error_code = 2


class RecordsTooLarge(RecordError):
    """The records are too large once they are decompressed. Java's producer splits the batch."""

    error_code = 10


class UnsupportedRecordFormat(RecordError):
    """The format is older than Kafka 0.11. Kafka refuses it as an invalid record, too."""

    error_code = 87


class TransactionalRecords(RecordError):
    """There are no transactions here. With this code all clients give up at once."""

    error_code = 53


class UnsupportedCompression(RecordError):
    error_code = 76


class InvalidRecord(RecordError):
    """``index`` is that of the first record that is wrong, None if it is the batch."""

    error_code = 87

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message if index is None else f"record {index}: {message}")
        self.index = index


class InvalidTimestamp(InvalidRecord):
    error_code = 32
