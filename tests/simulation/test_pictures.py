"""Pictures of histories: well-formed, and with what happened in them."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from simulation.picture import drawn, main
from support.sim.elastic import ElasticHistory, quicker
from support.sim.world import SECOND

pytestmark = pytest.mark.simulation

SEED = 11
TEXT = ".//{http://www.w3.org/2000/svg}text"


def test_a_picture_tells_what_happened(tmp_path: Path) -> None:
    assert main([str(SEED), str(tmp_path / "history.svg")]) == 0
    svg = (tmp_path / "history.svg").read_text(encoding="utf-8")
    texts = [element.text or "" for element in ElementTree.fromstring(svg).findall(TEXT)]
    with quicker():
        history = ElasticHistory(SEED)
        history.run()
    assert any(f"seed {SEED}" in text and "all invariants hold" in text for text in texts)
    faults = [words for _, who, _, words in history.world.story.lines if who == "!"]
    assert faults and all(any(words[:30] in text for text in texts) for words in faults)
    assert any("merge" in text and "of the target" in text for text in texts)
    assert any("brokers: traffic for" in text for text in texts)


def test_what_broke_is_drawn_up_to_there() -> None:
    class Breaks(ElasticHistory):
        def _calm(self) -> None:
            raise RuntimeError("here < there")

    svg = drawn(SEED, Breaks)
    ElementTree.fromstring(svg)
    assert "RuntimeError: here &lt; there" in svg


def test_drawing_does_not_change_the_history() -> None:
    with quicker():
        alone, watched = ElasticHistory(SEED), ElasticHistory(SEED)
        watched.world.after(SECOND // 2, lambda: None)
        alone.run()
        watched.run()
    assert alone.world.story.lines == watched.world.story.lines
