"""What is wrong with a file that cannot be read as it was written, with the file's name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from smq_core.errors import CorruptChunk, SmqError
from smq_storage.object_store.absence import confirm_missing
from smq_storage.object_store.store import EtagMismatch, ObjectMissing, Store


@contextmanager
def name_file_errors(
    store: Store, path: str, etag: str, lost: Callable[[], SmqError], altered: Callable[[], SmqError] | None = None
) -> Iterator[None]:
    """Raises ``lost()`` if the file is gone, and CorruptChunk if it is not the one with this etag or is damaged.

    That it is gone is confirmed first: StoreUnavailable if it is not. With ``altered`` another etag raises
    ``altered()``. Errors of the store pass as they are.
    """
    try:
        yield
    except ObjectMissing:
        confirm_missing(store, path)
        raise lost() from None
    except EtagMismatch:
        if altered is not None:
            raise altered() from None
        raise altered_file(path, etag) from None
    except CorruptChunk as error:
        raise _corrupt(path, error.message) from None
    except (pa.ArrowException, OSError) as error:
        raise _corrupt(path, f"it cannot be read: {error}") from None


def altered_file(path: str, etag: str) -> CorruptChunk:
    """The error for a file whose etag is not this one any more."""
    return _corrupt(path, f"it was altered, because its etag is not {etag} any more")


def _corrupt(path: str, what: str) -> CorruptChunk:
    return CorruptChunk(f"the file {path} cannot be used: {what}", path=path)
