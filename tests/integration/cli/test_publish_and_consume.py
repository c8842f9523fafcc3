"""Publishes and consumes messages with `smq publish` and `smq consume`."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.processes.cli import SMQ, environment, smq
from support.waiting import HANG_GUARD, eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow]

# Followed by how many there are.
ALL = ("--from", "earliest", "--idle-timeout", "120", "--max")


def test_lines_go_in_and_come_out(leader: str, topic: str) -> None:
    ran = smq("publish", topic, leader=leader, stdin="one\ntwo\nthree")
    assert ran.code == 0 and ran.out.startswith(f"3 messages published to {topic}"), ran

    assert smq("consume", topic, *ALL, "3", leader=leader).lines == ["one", "two", "three"]


def test_typed_rows_are_matched_by_name_and_cast(leader: str, typed_topic: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    rows = pa.table({"size": pa.array([1.0, 2.0]), "unknown": [0, 0], "name": pa.array(["a", None], pa.large_string())})
    pq.write_table(rows, file)

    refused = smq("publish", typed_topic, "--from", str(file), "--key", "name", leader=leader)
    assert refused.code == 1 and "the topic has no column unknown" in refused.err, refused
    ran = smq("publish", typed_topic, "--from", str(file), "--key", "name", "--ignore-unknown", leader=leader)

    assert ran.code == 0 and ran.out.startswith("2 messages"), ran
    found = smq("consume", typed_topic, *ALL, "2", "--format", "json", leader=leader).lines
    assert sorted(found) == ['{"name": "a", "size": 1}', '{"name": null, "size": 2}']


def test_old_messages_have_the_newest_columns_or_their_own(leader: str, typed_topic: str) -> None:
    for row in ('{"name": "a", "size": 1}', '{"name": "a", "size": 2, "gate": 3}'):
        ran = smq("publish", typed_topic, "--input", "json", leader=leader, stdin=row)
        assert ran.code == 0, ran
        if "gate" not in row:
            smq("topic", "alter", typed_topic, "--add-column", "gate:uint8", "--yes", leader=leader)

    consume = ("consume", typed_topic, *ALL, "2", "--format", "json", "--schema")
    newest = smq(*consume, "newest", leader=leader).lines
    assert newest == ['{"name": "a", "size": 1, "gate": null}', '{"name": "a", "size": 2, "gate": 3}']
    own = smq(*consume, "own", leader=leader).lines
    assert own == ['{"name": "a", "size": 1}', '{"name": "a", "size": 2, "gate": 3}']


def test_rows_that_do_not_fit_are_refused_column_by_column(leader: str, typed_topic: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("name,size\na,huge\n")

    ran = smq("publish", typed_topic, "--from", str(file), leader=leader)

    assert ran.code == 1 and "size" in ran.err and "huge" in ran.err and "Traceback" not in ran.err, ran
    assert smq("consume", typed_topic, "--from", "earliest", "--idle-timeout", "3", leader=leader).out == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--from", "no-such.parquet"], "there is no file no-such.parquet"),
        (["--from", "README"], "add --input"),
        (["--key", "size"], "has the key column name"),
    ],
)
def test_what_cannot_be_published_is_refused(leader: str, typed_topic: str, arguments: list[str], words: str) -> None:
    ran = smq("publish", typed_topic, *arguments, leader=leader)

    assert ran.code == 1 and words in ran.err and "Traceback" not in ran.err, ran


def test_json_lines_keep_their_text_and_their_key(leader: str, topic: str) -> None:
    line = '{"id": 7,  "price": 1.10}'
    smq("publish", topic, "--input", "json", "--key", "id", leader=leader, stdin=line + "\n")

    found = json.loads(smq("consume", topic, *ALL, "1", "-o", "json", "--meta", leader=leader).out)

    assert (found["key"], found["value"], found["_offset"]) == ("7", line, 0)
    assert found["_segment"].startswith(topic) and found["timestamp"] <= found["appended"]


def test_json_that_was_consumed_can_be_published_again(leader: str, topic: str) -> None:
    lines = [
        '{"key":"k","value":null,"headers":{"h":"1"}}',
        '{"key":"k","value":"","headers":[["h","1"],["h",null]]}',
        '{"key_base64":"/w==","value_base64":"AP8=","headers":[{"key":"h","value_base64":"/w=="}]}',
    ]
    consume = ("consume", topic, "--from", "earliest", "-o", "json", "--meta", "--max")
    smq("publish", topic, "--input", "json", leader=leader, stdin="\n".join(lines))
    first = smq(*consume, "3", leader=leader)

    again = smq("publish", topic, "--input", "json", leader=leader, stdin=first.out)

    assert again.out.startswith("3 messages"), again
    second = [json.loads(line) for line in smq(*consume, "6", leader=leader).lines]
    position = ("_segment", "_offset", "partition", "appended")
    found = [json.dumps({n: v for n, v in message.items() if n not in position}, sort_keys=True) for message in second]
    assert sorted(found)[0::2] == sorted(found)[1::2], "each twice"
    values = [message.get("value", message.get("value_base64")) for message in second]
    assert [values.count(value) for value in (None, "", "AP8=")] == [2, 2, 2]


def records(text: str) -> list[str]:
    """The lines of CSV that belong together, with their quotes, which tell an empty text from null."""
    return re.findall(r'(?:"[^"]*"|[^"\n])+\n', text)


def test_csv_that_was_consumed_can_be_published_again(leader: str, topic: str, tmp_path: Path) -> None:
    text = '"key","value"\n"00712","NA"\n,"null"\n"",""\n"k",\n"k","two\nlines"\n'
    file, again = tmp_path / "in.csv", tmp_path / "out.csv"
    file.write_text(text)
    assert smq("publish", topic, "--from", str(file), leader=leader).code == 0

    ran = smq("consume", topic, *ALL, "5", "--to", str(again), leader=leader)

    assert ran.code == 0, ran
    (names, *rows), (names_again, *rows_again) = (records(it) for it in (text, again.read_text()))
    assert names_again == names
    assert sorted(rows_again) == sorted(rows), "keys are in several partitions"


def test_nothing_of_a_file_with_a_mistake_is_published(leader: str, typed_topic: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("name,size\n" + "a,1\n" * 200_000 + "b,A0\n")

    ran = smq("publish", typed_topic, "--from", str(file), leader=leader)
    assert ran.code == 1 and "row 200,001: column size: 'A0' is no int32" in ran.err, ran
    assert smq("consume", typed_topic, "--from", "earliest", "--exit-at-end", leader=leader).out == ""


def test_a_value_that_is_larger_than_a_batch_goes_through_a_pipe(leader: str, topic: str) -> None:
    large = "x" * 20_000_000
    ran = smq("publish", topic, leader=leader, stdin=f"before\n{large}\nafter\n")
    assert ran.code == 0 and ran.out.startswith("3 messages published"), ran

    found = smq("consume", topic, *ALL, "3", leader=leader).lines
    assert sorted(found, key=len) == ["after", "before", large]


def test_habits_of_other_tools_work(leader: str, topic: str, tmp_path: Path) -> None:
    one = smq("publish", topic, "--value", "hello", "--key", "k", "-H", "a=1", "-H", "b=2=3", leader=leader)
    assert one.code == 0 and one.out.startswith(f"1 message published to {topic}, at {topic}-0-16-0:0"), one
    smq("publish", topic, leader=leader, stdin="1\n2\n3\n")

    last = smq("consume", topic, "--last", "2", "--max", "2", leader=leader)
    assert last.lines == ["2", "3"], last
    printed = smq("consume", topic, *ALL, "1", "--print", r"%o|%k|%h|%v\n", leader=leader)
    assert printed.lines == ["0|k|a=1,b=2=3|hello"], printed


def test_a_file_is_kept_until_the_topic_is_known(leader: str, tmp_path: Path) -> None:
    file = tmp_path / "kept.txt"
    file.write_text("precious")

    assert smq("consume", "no-such-topic", "--to", str(file), leader=leader).code == 1
    assert file.read_text() == "precious"


def test_a_line_that_is_refused_says_what_was_published_before(leader: str, topic: str) -> None:
    lines = "".join(f'{{"value":"{i:0100}"}}\n' for i in range(50_000))
    ran = smq("publish", topic, "--input", "json", leader=leader, stdin=lines + '{"value":1,"color":2}\n')

    assert ran.code == 1 and "line 50,001: a message has no field color" in ran.err, ran
    published = int(ran.err.split(" messages before the error")[0].split()[-1].replace(",", ""))
    found = smq("consume", topic, "--from", "earliest", "--max", str(published), leader=leader)
    assert len(found.lines) == published > 0


def test_a_group_goes_on_where_it_was_to_the_message(leader: str, topic: str) -> None:
    smq("publish", topic, leader=leader, stdin="".join(f"{i}\n" for i in range(10)))
    group = ("--group", "g", "--from", "earliest", "--idle-timeout", "120")

    first = smq("consume", topic, *group, "--max", "4", leader=leader)
    behind = lambda: (it := smq("group", "list", topic, leader=leader)) and (it.column("GROUP"), it.column("LAG"))  # noqa: E731
    eventually(lambda: behind() == (["g"], ["6"]), what="the brokers have reported how far the topic goes")
    second = smq("consume", topic, *group, "--max", "6", leader=leader)

    assert first.lines == [str(i) for i in range(4)]
    assert second.lines == [str(i) for i in range(4, 10)]


def test_what_was_consumed_into_parquet_can_be_published_again(leader: str, topic: str, tmp_path: Path) -> None:
    smq("publish", topic, leader=leader, stdin="one\ntwo\n")
    file = tmp_path / "out.parquet"

    ran = smq("consume", topic, "--from", "earliest", "--max", "2", "-o", "parquet", "--to", str(file), leader=leader)
    again = smq("publish", topic, "--from", str(file), leader=leader)

    assert ran.code == 0 and again.out.startswith("2 messages"), (ran, again)
    assert smq("consume", topic, *ALL, "4", leader=leader).lines == ["one", "two", "one", "two"]


def test_a_reader_that_has_seen_enough_ends_it_quietly(leader: str, topic: str) -> None:
    smq("publish", topic, leader=leader, stdin="".join(f"{i}\n" for i in range(50_000)))

    ran = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {' '.join(SMQ)} consume {topic} --from earliest | head -n 2"],
        capture_output=True,
        text=True,
        timeout=HANG_GUARD,
        env=environment(leader),
        check=False,
    )

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "0\n1\n", "")


def test_new_messages_come_as_they_are_published_and_sigterm_ends_it(leader: str, topic: str) -> None:
    consume = subprocess.Popen(
        [*SMQ, "consume", topic, "--from", "earliest", "--group", "live"],
        stdout=subprocess.PIPE,
        env=environment(leader),
        text=True,
    )
    try:
        assert consume.stdout is not None
        for line in ("first\n", "second\n"):
            smq("publish", topic, leader=leader, stdin=line)
            assert consume.stdout.readline() == line
        consume.send_signal(signal.SIGTERM)
        assert consume.wait(HANG_GUARD) == 128 + signal.SIGTERM
    finally:
        consume.kill()
        consume.wait()
    eventually(lambda: smq("group", "list", topic, leader=leader).column("MEMBERS") == ["0"], what="it has left")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_ends_a_publish_that_waits_and_it_says_how_many_are_in(
    leader: str, topic: str, number: signal.Signals
) -> None:
    publish = subprocess.Popen(
        [*SMQ, "publish", topic],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(leader),
        text=True,
    )
    try:
        assert publish.stdin is not None
        publish.stdin.write("first\nsecond\n")
        publish.stdin.flush()  # and no end of the input, for which it waits
        eventually(lambda: smq("consume", topic, "-e", "--from", "earliest", leader=leader).out == "first\nsecond\n")
        publish.send_signal(number)
        _, errors = publish.communicate(timeout=HANG_GUARD)
        assert publish.returncode == 128 + number
        assert "2 messages" in errors and "--skip 2" in errors, errors
    finally:
        publish.kill()
        publish.wait()


@pytest.mark.parametrize("time", ["yesterday", "12"])
def test_a_time_that_is_none_is_refused(leader: str, topic: str, time: str) -> None:
    ran = smq("consume", topic, "--from", time, leader=leader)

    assert ran.code == 1 and "such as 2024" in ran.err


def test_a_position_that_the_topic_does_not_have_is_refused_with_those_that_it_has(leader: str, topic: str) -> None:
    assert smq("publish", topic, leader=leader, stdin="a\nb\n").code == 0
    first = f"{topic}-0-16-0"

    for position, words in (
        (f"{first}:3", f"{first} has no offset 3: it has messages up to 2, so 0 to 2 are possible"),
        (f"{topic}-0-16-9:0", f"default/{topic} has no segment {topic}-0-16-9; it has {first}"),
    ):
        ran = smq("consume", topic, "--from", position, "--idle-timeout", "0", leader=leader)
        assert (ran.code, ran.out) == (1, "") and words in ran.err and "lost" not in ran.err, ran
    assert smq("consume", topic, "--from", f"{first}:1", "--max", "1", leader=leader).out == "b\n"
    ran = smq("consume", topic, "--segment", f"{topic}-0-16-9", leader=leader)
    assert ran.code == 1 and f"it has {first}" in ran.err, ran


def test_it_may_exit_at_the_end_of_the_topic(leader: str, topic: str) -> None:
    assert smq("consume", topic, "--from", "earliest", "--exit-at-end", leader=leader).out == ""
    assert smq("publish", topic, leader=leader, stdin="a\nb\n").code == 0
    ran = smq("consume", topic, "--from", "earliest", "-e", leader=leader)
    assert (ran.code, ran.out) == (0, "a\nb\n"), ran
    group = ("consume", topic, "--group", "g", "--from", "earliest", "-e")
    assert [smq(*group, leader=leader).out for _ in range(2)] == ["a\nb\n", ""]


def test_files_are_published_by_reference(leader: str, typed_topic: str, tmp_path: Path) -> None:
    one, two = tmp_path / "one.parquet", tmp_path / "two.parquet"
    pq.write_table(pa.table({"name": ["a", "b"], "size": [1, 2]}), one)
    two.write_text("no Parquet")
    ran = smq("publish", typed_topic, "--by-reference", str(one), str(two), leader=leader)
    assert ran.code == 1 and "two.parquet is not a Parquet file" in ran.err, ran
    ran = smq("publish", typed_topic, str(one), leader=leader)
    assert ran.code == 1 and "add --by-reference" in ran.err, ran
    pq.write_table(pa.table({"name": ["c"], "size": [3]}), two)
    ran = smq("publish", typed_topic, "--by-reference", str(one), str(two), leader=leader)
    assert ran.code == 0 and ran.out.startswith(f"3 messages of 2 files published to {typed_topic}"), ran


def test_several_topics_are_read_at_once_alone_and_in_a_group(leader: str, topic: str, typed_topic: str) -> None:
    for value in ("one", "two"):
        assert smq("publish", topic, "--value", value, leader=leader).code == 0
    typed = smq("publish", typed_topic, "--input", "json", leader=leader, stdin='{"name": "a", "size": 1}')
    assert typed.code == 0, typed

    printed = smq("consume", topic, typed_topic, *ALL, "3", "--print", "%t %v\\n", leader=leader).lines
    rows = {f'{typed_topic} {{"name": "a", "size": 1}}', f"{topic} one", f"{topic} two"}
    assert set(printed) == rows and printed.index(f"{topic} one") < printed.index(f"{topic} two")

    consume = ("consume", topic, typed_topic, "--group", "both", "--from", "earliest", "--format", "json", "-e")
    first = smq(*consume, "--max", "1", leader=leader).lines
    assert smq("segment", "roll", f"{topic}-0-16", leader=leader).code == 0
    assert smq("publish", topic, "--value", "three", leader=leader).code == 0
    found = [json.loads(line) for line in first + smq(*consume, leader=leader).lines]
    assert sorted((it["_topic"], it.get("value", it.get("size"))) for it in found if it["_topic"] == topic) == [
        (topic, "one"),
        (topic, "three"),
        (topic, "two"),
    ]
    assert [it for it in found if it["_topic"] == typed_topic] == [{"_topic": typed_topic, "name": "a", "size": 1}]
    assert smq(*consume, leader=leader).lines == []

    for options, words in ((["--to", "x.csv"], "a csv file"), (["--partition", "1"], "are of one topic")):
        refused = smq("consume", topic, typed_topic, *options, leader=leader)
        assert refused.code == 1 and words in refused.err, refused
