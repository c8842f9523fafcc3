"""Which folder of manifests this is, wherever it is mounted: an id made once and kept in DIR/id.

Topics say which folder wished them, so that a leader on another folder over the same filer does not take them for
deleted.
"""

from __future__ import annotations

import uuid
from pathlib import Path

from smq_core.errors import InvalidRequest


def folder_id(folder: Path) -> str:
    """The folder's id; made when it has none. Call it while the folder's lock is held. Raises InvalidRequest."""
    path = folder / "id"
    try:
        known = path.read_text().strip() if path.exists() else ""
        if known:
            return known
        made = uuid.uuid4().hex
        temporary = path.with_name(".id.tmp")
        temporary.write_text(f"{made}\n")
        temporary.replace(path)
    except OSError as error:
        raise InvalidRequest(f"cannot keep an id in {folder} ({error.strerror}): choose another --dir") from None
    return made
