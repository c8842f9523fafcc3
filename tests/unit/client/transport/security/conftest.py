from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.secure_release import SecureRelease


@pytest.fixture
def release(tmp_path: Path) -> Iterator[SecureRelease]:
    made = SecureRelease(tmp_path)
    yield made
    made.stop()
