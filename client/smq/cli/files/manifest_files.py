"""Topic manifest files as `smq apply` reads them: one manifest after the other, and the line of each field."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

from smq_core.errors import SpecRejected
from smq_core.model.names import shown
from smq_storage.topic_manifests.yaml_documents import BoundedLoader

_FIELD = re.compile(r"(?:apiVersion|kind|metadata|spec)[\w.\-/\[\]]*")


@dataclass(frozen=True, slots=True)
class ManifestInFile:
    """One manifest of a file; ``text`` is YAML of it alone."""

    file: str
    text: str
    node: yaml.Node | None

    def locate(self, message: str) -> str:
        """The message of an error with file and line before each of its lines.

        The line is that of the field with which a line of the message begins, or of its nearest part that is there.
        """
        return "\n".join(f"{self.file}:{self._line_of(line)}: {line}" for line in message.splitlines())

    def _line_of(self, message: str) -> int:
        found = _FIELD.match(message)
        node = self.node
        line = node.start_mark.line if node is not None else 0
        for part in re.findall(r"[^.\[\]]+", found.group()) if found is not None else ():
            if isinstance(node, yaml.MappingNode):
                entry = next(((k, v) for k, v in node.value if k.value == part), None)
                if entry is None:
                    break
                line, node = entry[0].start_mark.line, entry[1]
            elif isinstance(node, yaml.SequenceNode) and part.isdecimal() and int(part) < len(node.value):
                node = node.value[int(part)]
                line = node.start_mark.line
            else:
                break
        return line + 1


def read_manifests(file: str) -> list[ManifestInFile]:
    """The manifests of a file, or of stdin for ``-``; a single one exactly as it is written.

    Raises SpecRejected with file and line if it is not YAML, or if it is what another command prints; OSError.
    """
    text = sys.stdin.read() if file == "-" else Path(file).read_text()
    name = "stdin" if file == "-" else file
    try:
        nodes = list(yaml.compose_all(text, Loader=BoundedLoader))
        documents = list(yaml.load_all(text, Loader=BoundedLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"{mark.line + 1}: " if mark is not None else " "
        raise SpecRejected(f"{name}:{line}not YAML: {' '.join(filter(None, (error.context, error.problem)))}") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise SpecRejected(f"{name}: not YAML: {error}") from None
    for document in documents:
        _check_no_description(name, document)
    found = [(node, document) for node, document in zip(nodes, documents, strict=True) if document is not None]
    if len(found) <= 1:
        return [ManifestInFile(name, text, found[0][0] if found else None)]
    return [ManifestInFile(name, yaml.safe_dump(document, sort_keys=False), node) for node, document in found]


def _check_no_description(file: str, document: object) -> None:
    """Raises SpecRejected for what `smq topic describe` and `smq topic list` print as YAML."""
    described = document.get("topic") if isinstance(document, dict) else document
    for it in described if isinstance(described, list) else [described]:
        if isinstance(it, dict) and "layout_version" in it:
            topic = str(it.get("name", "TOPIC")).removeprefix("default/")
            raise SpecRejected(
                f"{file}: this describes topic {shown(topic)}, and is no manifest: `smq topic export TOPIC` prints "
                "the manifest of a topic"
            )
