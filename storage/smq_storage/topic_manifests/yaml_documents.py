"""YAML from people and strangers, within bounds: a few hundred bytes can otherwise take minutes and gigabytes."""

from __future__ import annotations

from typing import Any

import yaml

from smq_core.errors import SpecRejected
from smq_core.model.names import bounded

# Of one manifest. Four hundred columns with long names fit, and it is parsed in less than a second.
MAX_MANIFEST_BYTES = 64 << 10
# Of nested mappings and lists. A Topic resource has five; more than some hundred end Python's stack.
MAX_DEPTH = 16


class BoundedLoader(yaml.SafeLoader):
    """Refuses aliases, which multiply what they name, and documents that are nested too deep."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            self._refuse("aliases (*name) are not accepted: write the value out", event)
        if self._depth >= MAX_DEPTH:
            self._refuse(f"nested deeper than {MAX_DEPTH} levels, which no Topic is", event)
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def _refuse(self, why: str, event: yaml.Event) -> None:
        raise yaml.composer.ComposerError(None, None, why, event.start_mark)  # type: ignore[arg-type]


def check_size(size_bytes: int) -> None:
    """Raises SpecRejected if a manifest of this size is too large."""
    if size_bytes > MAX_MANIFEST_BYTES:
        raise SpecRejected(
            f"the manifest has {size_bytes:,} bytes, and {MAX_MANIFEST_BYTES:,} are accepted: apply one Topic at a "
            "time, without data"
        )


def load_documents(text: str) -> list[Any]:
    """The documents of a manifest that are not empty. Raises SpecRejected."""
    check_size(len(text) if len(text) > MAX_MANIFEST_BYTES else len(text.encode(errors="surrogatepass")))
    try:
        return [document for document in yaml.load_all(text, Loader=BoundedLoader) if document is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" in line {mark.line + 1}" if mark is not None else ""
        reason = " ".join(filter(None, (error.context, error.problem)))
        raise SpecRejected(f"the manifest is not YAML{where}: {bounded(reason, 300)}") from None
    # A value such as a date that there is not, or a number with thousands of digits, is a plain ValueError.
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise SpecRejected(f"the manifest is not YAML: {bounded(' '.join(str(error).split()), 300)}") from None
