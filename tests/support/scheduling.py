"""Which tests of a run with several workers share a worker, and which begin first."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from xdist.scheduler import LoadScopeScheduling

# The tests of such a folder share something that is slow to start and busy even if nobody uses it: an API server,
# Spark, a `smq dev`. With one worker for the folder there is one of it and not three.
ONE_WORKER = ("tests/integration/kube/", "tests/spark/", "tests/integration/cli/")
# What takes long begins first, so that no worker is left alone with it at the end. Simulations need the processor,
# and the others wait for their processes most of the time, so they go well together.
FIRST = ("tests/integration/kube/", "tests/spark/", "tests/simulation/", "tests/integration/")


class FolderScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """The tests of a file, or of a folder of ``ONE_WORKER``, run in one worker, in order."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return next((folder for folder in ONE_WORKER if file.startswith(folder)), file)


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The longest folders first; otherwise the order is kept."""

    def rank(item: pytest.Item) -> int:
        return next((n for n, folder in enumerate(FIRST) if item.nodeid.startswith(folder)), len(FIRST))

    return sorted(items, key=rank)
