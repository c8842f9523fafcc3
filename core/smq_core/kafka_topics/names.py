"""Names of topics for Kafka's clients.

A topic without ``spec.kafka.name`` has its own name there in the namespace ``default``, and ``namespace.topic`` in
another one. What Kafka accepts as a name and Kubernetes does not is a ``spec.kafka.name``.
"""

from __future__ import annotations

import re
from hashlib import sha256

from smq_core.model.names import DEFAULT_NAMESPACE, is_label

MAX_CHARACTERS = 249
PATTERN = r"[a-zA-Z0-9._-]{1,249}"
# Of a resource's name, before the digits that distinguish it.
_MAX_SLUG_CHARACTERS = 54

_NAME = re.compile(PATTERN)


def is_kafka_name(name: str) -> bool:
    """Whether Kafka accepts this as the name of a topic."""
    return _NAME.fullmatch(name) is not None and name not in (".", "..")


def own_name(full: str) -> str:
    """``default/flights`` -> ``flights``, ``team-a/flights`` -> ``team-a.flights``."""
    namespace, _, name = full.partition("/")
    return name if namespace == DEFAULT_NAMESPACE else f"{namespace}.{name}"


def topic_of_own_name(name: str) -> str | None:
    """The topic whose :func:`own_name` this is, or None if no topic can have it.

    ``default.flights`` is none: that topic is called ``flights``.
    """
    namespace, dot, topic = name.rpartition(".")
    if not is_label(topic) or (dot and (not is_label(namespace) or namespace == DEFAULT_NAMESPACE)):
        return None
    return f"{namespace or DEFAULT_NAMESPACE}/{topic}"


def resource_name(name: str) -> str:
    """The name of a new topic in the namespace ``default`` that Kafka's clients call so.

    It is the same name if that is one of a resource; otherwise one that resembles it, and is always the same.
    """
    if is_label(name):
        return name
    slug = re.sub("[^a-z0-9]+", "-", name.lower())[:_MAX_SLUG_CHARACTERS].strip("-")
    digits = sha256(name.encode()).hexdigest()[:8]
    return f"{slug}-{digits}" if slug else f"topic-{digits}"
