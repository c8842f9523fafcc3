"""No name leads out of the folder that a path is for: it is refused, or encoded as one part of the path."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

import smq
from pyspark_smq.options import Connection
from smq.reading import open_topic
from smq_core.errors import InvalidRequest
from smq_core.model.names import check_topic_name, full_topic_name, is_file_name
from smq_storage.catalog import paths
from support.data.tricky_names import NAMES, PARTS

KNOWN: dict[str, Any] = {
    "topic": "travel/flights",
    "uid": "uid-1",
    "segment": "flights-0-64-1",
    "first": 5,
    "page": 3,
    "name": "billing",
    "producer": "p",
    "pin_id": "pin-1",
    "epoch": 1,
    "attempt": 2,
    "version": 1,
    "nonce": "abc",
    "file_name": "p-1-2-abc.parquet",
}
NAMES_OF_FILES = {"file_list": "flights-0-64-1.00000001.json", "large_value": "p-1-abc.value"}
# These take what this program has made itself: a name or path from the index, an offset, a nonce.
TRUSTED = {("file_list", "name"), ("file_list_name", "segment")}
PART = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9._-]*")


def builders() -> dict[str, Callable[..., str]]:
    """Whatever builds a path or a part of one from names."""
    functions = inspect.getmembers(paths, inspect.isfunction)
    own = [(name, it) for name, it in functions if it.__module__ == paths.__name__ and not name.startswith("_")]
    return {name: it for name, it in own if set(inspect.signature(it).parameters) <= KNOWN.keys()}


def arguments(name: str) -> dict[str, Any]:
    known = KNOWN | ({"name": NAMES_OF_FILES[name]} if name in NAMES_OF_FILES else {})
    return {parameter: known[parameter] for parameter in inspect.signature(builders()[name]).parameters}


CASES = [
    (name, parameter)
    for name in builders()
    for parameter, value in arguments(name).items()
    if isinstance(value, str) and parameter != "nonce" and (name, parameter) not in TRUSTED
]


def test_every_builder_of_paths_is_tried() -> None:
    tried = {name for name, _ in CASES}
    assert {"current", "layout", "chunk", "group", "pin", "producer_claim", "uploaded_file", "large_value"} <= tried
    assert len(tried) >= 20


@pytest.mark.parametrize(("builder", "parameter"), CASES)
def test_a_tricky_name_stays_in_its_folder(builder: str, parameter: str) -> None:
    build, given = builders()[builder], arguments(builder)
    plain = build(**given).split("/")
    for trick in NAMES if parameter == "topic" else PARTS:
        try:
            found = build(**given | {parameter: trick}).split("/")
        except InvalidRequest as error:
            assert error.message.isprintable() and len(error.message) < 400, trick[:50]
            continue
        assert len(found) == len(plain) and all(PART.fullmatch(part) for part in found), (trick[:50], found)
        assert sum(a != b for a, b in zip(found, plain, strict=True)) <= 2, (trick[:50], found)


def test_ids_of_producers_that_cannot_be_names_of_files_are_distinct_files() -> None:
    made = [paths.producer_claim("a/b", "u", producer) for producer in PARTS]
    assert len(set(made)) == len(set(PARTS))
    assert len({path.lower() for path in made if "=" in path}) == len([it for it in set(PARTS) if not is_file_name(it)])


@pytest.mark.parametrize("segment", ["_groups", "_current.json", "_compacted"])
def test_no_segment_has_the_folder_of_metadata(segment: str) -> None:
    with pytest.raises(InvalidRequest, match="begins with no '_'"):
        paths.chunk("a/b", "u", segment, 0)


def test_a_topic_has_one_spelling() -> None:
    accepted = {name for name in NAMES if _is_accepted(name)}
    assert accepted == {"default/con", "con/t", "con", "a/b"}
    assert all(name.isascii() and name == name.lower() for name in accepted)
    assert full_topic_name("flights") == "default/flights" and full_topic_name("a/b") == "a/b"
    with pytest.raises(InvalidRequest, match="not 'A/t'"):
        full_topic_name("t", namespace="A")
    with pytest.raises(InvalidRequest, match="not 7"):
        full_topic_name(7)  # type: ignore[arg-type]


OWN = "a/b/u"
FOR_READERS = (
    *(f"{OWN}/_topic.json", f"{OWN}/_layout.json", f"{OWN}/_index/00000001.json"),
    f"{OWN}/_file_lists/{paths.file_list_name('s-1', 1, 'n0nce')}",
    *(paths.chunk("a/b", "u", "s-1", 7), paths.compacted_file("a/b", "u", "s-1", 7, "n0nce")),
    *(paths.uploaded_file("u", "p-1-2-n.parquet"), paths.large_value("u", "p-1-n.value")),
)
OF_OTHERS = (
    *("", "/", "_clock.json", "_format.json", "_deleted/u.json", OWN, f"{OWN}/"),
    *("a/c/_current.json", "a/b/u/_current.json", "a/_current.json", "_current.json"),
    *(f"{OWN}/_groups/g.json", f"{OWN}/_producers/p.json", f"{OWN}/_pins/p.json", f"{OWN}/_publishes.json"),
    *(f"{OWN}/_layout.json/", f"/{OWN}/_layout.json", f"./{OWN}/_layout.json", f"{OWN}//_layout.json"),
    *(f"{OWN}/_layout.json\n", f"{OWN}/_layout.json?x", f"{OWN}/%5flayout.json", f"{OWN}/_index/٠٠٠٠٠٠٠١.json"),
    *(f"{OWN}/../v/_layout.json", f"{OWN}/s-1/../../v/s-1/{7:020d}.parquet", f"{OWN}/../{7:020d}.parquet"),
    *(f"{OWN}/./{7:020d}.parquet", f"{OWN}/_compacted/../s-1/{7:020d}-n.parquet", f"{OWN}/_x/{7:020d}.parquet"),
    *(f"{OWN}/_compacted/{7:020d}.parquet", f"{OWN}/s-1/x.parquet", f"{OWN}/s-1/s-2/{7:020d}.parquet"),
    *(f"a/b/v/s-1/{7:020d}.parquet", f"a/bb/u/s-1/{7:020d}.parquet", "a/b/uu/_layout.json", "A/b/u/_layout.json"),
    *("_uploads/v/p-1-2-n.parquet", "_uploads/u/../v/p.parquet", "_uploads/u/.p.parquet", "_uploads/u/v/p.parquet"),
    *(
        "_large_values/v/p.value",
        "_large_values/u/../../_clock.json",
        "_large_values/u/p.parquet",
        "_uploads/u/p.value",
    ),
)


@pytest.mark.parametrize("path", FOR_READERS)
def test_readers_of_a_topic_get_its_files(path: str) -> None:
    assert paths.is_for_readers("a/b", "u", path)
    assert not paths.is_for_readers("a/b", "v", path) and not paths.is_for_readers("a/c", "v", path)


def test_readers_of_a_topic_find_its_uid() -> None:
    assert paths.is_for_readers("a/b", "u", "a/b/_current.json")


@pytest.mark.parametrize("path", OF_OTHERS)
def test_readers_of_a_topic_get_nothing_else(path: str) -> None:
    assert not paths.is_for_readers("a/b", "u", path)


def test_readers_list_what_they_need_only() -> None:
    allowed = {f"{OWN}/s-1", f"{OWN}/_compacted/s-1", f"{OWN}/_index", f"{OWN}/_file_lists"}
    refused = {OWN, f"{OWN}/", f"{OWN}/_compacted", f"{OWN}/_groups", f"{OWN}/s-1/", f"{OWN}/s-1/..", f"{OWN}/.."}
    refused |= {"", "a/b", "a/b/v/s-1", "_uploads/u", "_large_values/u", f"{OWN}/_compacted/..", f"{OWN}/s-1\n"}
    assert {it for it in allowed | refused if paths.is_folder_for_readers("a/b", "u", it)} == allowed


def test_programs_and_spark_refuse_such_a_topic_before_they_connect() -> None:
    with smq.connect("127.0.0.1:1", timeout=0.01) as client:
        for name in ("..", "a/../b", "/a", "Flights", "a/b/c", "x" * 65536, "_uploads/t", "\ud800"):
            for use in (client.producer, client.consumer, client.admin().topic, _open):
                with pytest.raises(InvalidRequest, match="a topic's name must be"):
                    use(name)


def _open(topic: str) -> object:
    connection = Connection(topic, leader="127.0.0.1:1")
    return open_topic(connection.topic, **connection.arguments())


def _is_accepted(name: str) -> bool:
    try:
        check_topic_name(name if "/" in name else f"default/{name}")
    except InvalidRequest:
        return False
    return True
