"""A file that people change while the process runs: it is read anew when it has changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import structlog
import yaml

from smq_core.errors import InvalidRequest
from smq_storage.topic_manifests.yaml_documents import BoundedLoader

log = structlog.get_logger(__name__)

# Reading more would hold up the loop for long.
MAX_FILE_BYTES = 1 << 20

Value = TypeVar("Value")
# When the file was changed last (nanoseconds), its size and its inode.
Stamp = tuple[int, int, int]


class WatchedFile(Generic[Value]):
    """``parse`` gets its bytes, and raises InvalidRequest. The constructor reads the file, and raises that too.

    Later a file that is damaged or away changes nothing: an editor may be writing it. The log says so.
    """

    def __init__(self, path: Path, parse: Callable[[bytes], Value]) -> None:
        self._path = path
        self._parse = parse
        self._problem = ""
        try:
            self._stamp = self._present_stamp()
            self._value = self._read()
        except OSError as error:
            raise InvalidRequest(f"{path} cannot be read: {error.strerror}") from None

    def current(self) -> Value:
        """What the file says."""
        try:
            stamp = self._present_stamp()
            if stamp != self._stamp:
                self._value = self._read()
                self._stamp, self._problem = stamp, ""
                log.info("security_file.read", file=str(self._path))
        except OSError as error:
            self._report(error.strerror or type(error).__name__)
        except InvalidRequest as error:
            self._stamp = stamp
            self._report(error.message)
        return self._value

    def _report(self, message: str) -> None:
        """Logs a problem once."""
        if message == self._problem:
            return
        self._problem = message
        log.error(
            "security_file.rejected", file=str(self._path), message=message, advice="what it said before stays in force"
        )

    def _present_stamp(self) -> Stamp:
        status = self._path.stat()
        return (status.st_mtime_ns, status.st_size, status.st_ino)

    def _read(self) -> Value:
        with self._path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES + 1)
        if len(text) > MAX_FILE_BYTES:
            raise InvalidRequest(f"{self._path} has more than {MAX_FILE_BYTES:,} bytes")
        try:
            return self._parse(text)
        except InvalidRequest as error:
            raise InvalidRequest(f"{self._path}: {error.message}") from None


def from_yaml(parse: Callable[[object], Value]) -> Callable[[bytes], Value]:
    """``parse`` gets the document of a file in YAML, and raises InvalidRequest."""

    def parse_text(text: bytes) -> Value:
        try:
            document = yaml.load(text, Loader=BoundedLoader)
        except yaml.MarkedYAMLError as error:  # without the text around it, which may be a secret
            mark = error.problem_mark or error.context_mark
            raise InvalidRequest(f"no YAML in line {mark.line + 1 if mark is not None else 1}") from None
        except (yaml.YAMLError, ValueError):
            raise InvalidRequest("it is no YAML") from None
        return parse(document)

    return parse_text
