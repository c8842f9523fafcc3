"""What a client sends on a DoPut stream. A frame that cannot be decoded is the client's fault, not a bug here."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from smq_core.errors import InvalidRequest


class BatchReader:
    """Flight's reader, whose errors are InvalidRequest. A stream that breaks ends like one that is closed."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    @property
    def schema(self) -> pa.Schema:
        """Raises InvalidRequest if the stream has no valid schema."""
        try:
            return self._reader.schema
        except fl.FlightError:
            raise
        except (pa.ArrowException, OSError, EOFError) as error:
            raise _malformed(error) from None

    def read_chunk(self) -> Any:
        """Raises StopIteration at the end, InvalidRequest if the frame is malformed."""
        try:
            return self._reader.read_chunk()
        except fl.FlightError:
            raise
        except (pa.ArrowException, OSError, EOFError) as error:
            raise _malformed(error) from None


def _malformed(error: Exception) -> InvalidRequest:
    reason = str(error).split("\n", 1)[0]
    return InvalidRequest(f"a frame of the stream is malformed: {reason}")
