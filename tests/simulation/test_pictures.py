"""Pictures of histories are well-formed and show the changes."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from simulation.picture import drawn, main
from support.sim.engine.world import SECOND
from support.sim.histories.elastic import ElasticHistory, shortened_waits

pytestmark = pytest.mark.simulation

SEED = 11
TEXT = ".//{http://www.w3.org/2000/svg}text"


def run_history(seed: int) -> ElasticHistory:
    with shortened_waits():
        history = ElasticHistory(seed)
        history.run()
    return history


@pytest.mark.slow
def test_a_picture_shows_what_happened(tmp_path: Path) -> None:
    """The picture of the first history with faults, a merge, and an additional broker."""
    for seed in range(100):
        history = run_history(seed)
        faults = [words for _, who, _, words in history.world.story.lines if who == "!"]
        decided = [words for _, _, words in history.decisions]
        merged = any("merge" in words and "together at" in words for words in decided)
        if history.faults.kinds and merged and any("brokers: traffic for" in words for words in decided):
            break
    assert main([str(seed), str(tmp_path / "history.svg")]) == 0
    svg = (tmp_path / "history.svg").read_text(encoding="utf-8")
    texts = [element.text or "" for element in ElementTree.fromstring(svg).findall(TEXT)]
    assert any(f"seed {seed}" in text and "all invariants hold" in text for text in texts)
    assert all(any(words[:30] in text for text in texts) for words in faults)
    assert any("merge" in text and "together at" in text for text in texts)
    assert any("brokers: traffic for" in text for text in texts)


def test_what_broke_is_drawn_up_to_there() -> None:
    class Breaks(ElasticHistory):
        def _recover(self) -> None:
            raise RuntimeError("here < there")

    svg = drawn(SEED, Breaks)
    ElementTree.fromstring(svg)
    assert "RuntimeError: here &lt; there" in svg


def test_drawing_does_not_change_the_history() -> None:
    with shortened_waits():
        alone, watched = ElasticHistory(SEED), ElasticHistory(SEED)
        watched.world.after(SECOND // 2, lambda: None)
        alone.run()
        watched.run()
    assert alone.world.story.lines == watched.world.story.lines
