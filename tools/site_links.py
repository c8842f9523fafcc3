"""A hook of MkDocs: links from the documentation to other files of the repository become plain text on the site.

On the site there are no such files. A link to a file that the repository does not have is an error, as every other
broken link is.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]+)\]\((?P<target>\.\./[^)#\s]+)(?:#[^)\s]*)?\)")

log = logging.getLogger("mkdocs.hooks.site_links")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Called by MkDocs for each page. Warns of links to what is not there, which is an error with ``--strict``."""
    return without_outside_links(markdown, DOCS / page.file.src_uri)


def without_outside_links(markdown: str, page: Path) -> str:
    """The page's text with links to files outside of docs/ replaced by the text of the link."""

    def replaced(link: re.Match[str]) -> str:
        target = (page.parent / link["target"]).resolve()
        if target.is_relative_to(DOCS):
            return link[0]
        if not (target.is_relative_to(ROOT) and target.exists()):
            log.warning("%s links to %s, which the repository does not have", page.name, link["target"])
        return link["text"]

    return LINK.sub(replaced, markdown)
