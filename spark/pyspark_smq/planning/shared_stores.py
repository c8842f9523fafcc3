"""The stores of a process, each opened once: a client takes 20 ms to make, and its connections serve the next task."""

from __future__ import annotations

import os
from functools import lru_cache

from smq.reading import TopicLocation
from smq_storage.object_store.store import Store, StoreSettings

MAX_STORES = 16


def shared_store(location: TopicLocation) -> Store:
    """The store of the topic's files, with the credentials that the environment has now if none were given."""
    environment = tuple(sorted(it for it in os.environ.items() if it[0].startswith("AWS_")))
    if location.needs_signed_reads:
        return _opened_for_topic(location, environment)
    return _opened(location.store, environment)


@lru_cache(MAX_STORES)
def _opened(settings: StoreSettings, environment: tuple[tuple[str, str], ...]) -> Store:
    return settings.open()


@lru_cache(MAX_STORES)
def _opened_for_topic(location: TopicLocation, environment: tuple[tuple[str, str], ...]) -> Store:
    """The URLs of a reader without credentials are those of one topic."""
    return location.open_store()
