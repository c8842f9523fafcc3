"""How a producer writes uploads: itself, or with URLs that the leader signs. ``smq.connect`` describes the modes."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

UploadMode: TypeAlias = Literal["auto", "direct", "presigned"]
UPLOAD_MODES: tuple[str, ...] = get_args(UploadMode)
