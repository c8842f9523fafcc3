"""A link leads to a file that exists, and one whose text is the name of a page to that page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tools.check_vocabulary import tracked_files

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
PAGES = {path.stem for path in DOCS.glob("*.md")}


def named(text: str) -> Iterator[str]:
    """The pages that this text names, in the singular or the plural."""
    word = text.lower().removesuffix(".md")
    yield from {word, f"{word}s", word.removesuffix("s")} & PAGES


def test_a_link_that_names_a_page_leads_there() -> None:
    links = [
        (path.name, text, target)
        for path in sorted(DOCS.glob("*.md"))
        for text, target in re.findall(r"\[([^\]]+)\]\(([\w.-]+\.md)[^)]*\)", path.read_text())
    ]
    wrong = [link for link in links if any(page != link[2].removesuffix(".md") for page in named(link[1]))]
    assert len(links) > 100 and not wrong


def test_links_between_files_lead_to_files() -> None:
    """MkDocs checks those within docs/ too, with their anchors, but nothing checks the others."""
    links = [
        (page, target)
        for page in tracked_files()
        if page.suffix == ".md"
        for target in re.findall(r"(?<!`)\]\(((?!https?:)[^)#\s]+)", (ROOT / page).read_text())
    ]
    assert len(links) > 200
    assert not [(page, target) for page, target in links if not (ROOT / page.parent / target).exists()]
