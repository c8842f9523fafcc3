"""The check that keeps retired words out of identifiers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import check_vocabulary
from tools.check_vocabulary import Identifier, check, retired_in, words_of

PYTHON = [
    "class WishList: ...",
    "class Scene: ...",
    "def kick(self): ...",
    "def run(patience): ...",
    "run = lambda told: told",
    "strays: int = 3",
    "self.heard_at = 1",
    "for stray in found: ...",
    "import smq as desk",
    "try: ...\nexcept ValueError as refusal: ...",
    "match found:\n    case int() as piece: ...",
    "log.info('broker.connected', rivals=2)",
    "self.log.bind(rival=1)",
    "log.warning('deaf.detected')",
    "parser.add_argument('--split-by-hand')",
    "Counter('smq_wishes_total', 'Topics.')",
    "condition(type='HeirMissing', status=True)",
    "annotation = 'seaweedmq.io/accept-nonsense'",
]

EXEMPT = [
    "for row in table.rows: ...",
    "def watch(self, checks): ...",
    "def wait(seconds): return round(seconds)",
    "numbers = [start for start in starts]",
    "rest, words = argv[0], argv[1:]",
    "def steady_load(look_ahead): ...",
    "leader_stands = understand = speller = 1",
    "raise ValueError('the wish of a stray is told by hand')  # people and patience in prose",
]


@pytest.mark.parametrize("source", PYTHON)
def test_a_retired_name_is_found(tmp_path: Path, source: str) -> None:
    path = tmp_path / "module.py"
    path.write_text("a = 1\n" + source)
    (finding,) = check([path])
    assert finding.path == path and finding.line >= 2 and finding.instead
    assert str(finding).startswith(f"{path}:{finding.line}: {finding.name} uses the retired word ")


@pytest.mark.parametrize("source", EXEMPT)
def test_words_that_only_look_alike_are_exempt(tmp_path: Path, source: str) -> None:
    path = tmp_path / "module.py"
    path.write_text(source)
    assert check([path]) == []


@pytest.mark.parametrize("name", ["strays.py", "patience.proto", "Held.py"])
def test_the_name_of_a_module_counts(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("")
    assert len(check([tmp_path / name])) == 1


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("rpc Kick (Empty) returns (Empty);", 1),
        ("repeated string told = 2;  // told", 1),
        ("// a wish\nint64 wait = 1;", 0),
    ],
)
def test_protocol_buffers(tmp_path: Path, source: str, found: int) -> None:
    (tmp_path / "a.proto").write_text(source)
    assert len(check([tmp_path / "a.proto"])) == found


def test_keys_and_reasons_of_documents() -> None:
    text = "spec:\n  maxPatience: 3\n  # a wish\n  description: what people wish\n  enum: [HeirMissing, Ready]\n"
    names = list(check_vocabulary.document_identifiers(text))
    assert [(i.name, i.line) for i in names if retired_in(i)] == [("maxPatience", 2), ("HeirMissing", 5)]


def test_templates() -> None:
    text = """{{- define "smq.desk" -}}
      # people wish
      calmPeriod: {{ .Values.broker.spareMemory }}
      - --heard-within=3s
    """
    names = [i for i in check_vocabulary.template_identifiers(text) if retired_in(i)]
    assert [(i.line, i.name) for i in names] == [
        (1, "smq.desk"),
        (3, "calmPeriod"),
        (3, "broker.spareMemory"),
        (4, "--heard-within"),
    ]


def test_words_of_a_name() -> None:
    assert words_of("openChunkFile") == words_of("_open_chunk_file") == words_of("--open-chunk-file")
    assert words_of("HTTPServerV2") == ["http", "server", "v"]


def test_phrases_and_whole_names() -> None:
    assert retired_in(Identifier(1, "split_by_hand")) == ("by hand", "manual")
    assert retired_in(Identifier(1, "by_handle")) is None
    assert retired_in(Identifier(1, "_look", whole=True)) == ("look", "poll, check")
    assert retired_in(Identifier(1, "look")) is None, "a variable may have the name"


def test_no_word_is_both_retired_and_exempt() -> None:
    assert not check_vocabulary.EXEMPT_WORDS.keys() & check_vocabulary.RETIRED_WORDS.keys()
