"""The checker of client logs finds each violation. Each test makes logs with one thing wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from support.programs import load_chaos_program

PATH = Path(__file__).parents[2] / "chaos" / "checker.py"
S, T = "t-0-64-0", "t-0-64-1"
Change = Callable[["HandmadeLogs"], None]


@pytest.fixture(scope="module")
def checker() -> ModuleType:
    return load_chaos_program("checker")


class HandmadeLogs:
    """Two segments in turn; a writer with one run, and one that was killed and continued: ``b 1 1`` is there twice."""

    def __init__(self) -> None:
        order = [(S, 0, "a 1 0"), (S, 1, "b 1 0"), (S, 2, "a 1 1"), (S, 3, "b 1 1"), (T, 0, "b 2 1"), (T, 1, "a 1 2")]
        got = [f"got {segment} {offset} {message}" for segment, offset, message in order]
        acked = {message: f"acked {message} {segment} {offset}" for segment, offset, message in order}
        self.files = {
            "writers/w0.1": [*(line for n in range(3) for line in (f"sent a 1 {n}", acked[f"a 1 {n}"])), "end"],
            "writers/w1.1": ["sent b 1 0", acked["b 1 0"], "sent b 1 1"],
            "writers/w1.2": ["sent b 2 1", "acked b 2 1 t-0-64-1 -", "end"],
            "readers/r0.1": [*got, "end"],
            "readers/r1.1": [*got, "end"],
            "groups/g/m0.1": [
                *("started 100", "at 110", *got[:2], f"trying 120 {S} 2", f"committed 130 {S} 2"),
                *("at 140", *got[2:4], f"trying 150 {S} 4"),  # killed
            ],
            "groups/g/m1.1": [
                *("started 105", "at 160", *got[2:4], f"trying 170 {S} 4", f"committed 180 {S} 4"),
                *("at 190", *got[4:], f"trying 200 {T} 2", "refused 210 StaleGeneration"),
                *("at 220", *got[4:], f"trying 230 {T} 2", f"committed 240 {T} 2", "end"),
            ],
        }

    def replace(self, name: str, old: str, *new: str) -> None:
        at = self.files[name].index(old)
        self.files[name][at : at + 1] = new

    def replace_everywhere(self, old: str, *new: str) -> None:
        for name, lines in self.files.items():
            self.files[name] = [line for before in lines for line in (new if before == old else (before,))]

    def write(self, folder: Path) -> Path:
        for name, lines in self.files.items():
            path = folder / f"{name}.log"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"{line}\n" for line in lines))
        return folder


def test_logs_without_a_fault_have_no_problems(checker: ModuleType, tmp_path: Path) -> None:
    findings = checker.check(HandmadeLogs().write(tmp_path))
    assert findings.report()["problems"] == {}
    assert {name: count for name, count in findings.counts.items() if count} == {
        **{"writer runs": 3, "sent": 6, "acked": 5, "without outcome": 1, "segments": 2, "messages": 6},
        **{"readers": 2, "delivered": 12, "member runs": 2, "commits": 3, "delivered to members": 10},
    }


def lost(logs: HandmadeLogs) -> None:
    logs.replace_everywhere(f"got {T} 1 a 1 2")


def lost_without_a_known_offset(logs: HandmadeLogs) -> None:
    logs.replace_everywhere(f"got {T} 0 b 2 1", f"got {T} 0 b 1 1")


def lost_to_one_reader(logs: HandmadeLogs) -> None:
    logs.replace("readers/r1.1", f"got {T} 1 a 1 2")


def lost_outside_of_the_reported_range(logs: HandmadeLogs) -> None:
    logs.replace_everywhere(f"got {T} 1 a 1 2", f"lost {T} 2 -")


def reported_to_one_reader_only(logs: HandmadeLogs) -> None:
    logs.replace_everywhere(f"got {T} 1 a 1 2", f"lost {T} 1 -")
    logs.replace("readers/r1.1", f"lost {T} 1 -")


def doubled_in_the_log(logs: HandmadeLogs) -> None:
    logs.replace_everywhere(f"got {T} 1 a 1 2", f"got {T} 1 a 1 2", f"got {T} 2 a 1 2")


def doubled_for_a_reader(logs: HandmadeLogs) -> None:
    logs.replace("readers/r0.1", f"got {S} 3 b 1 1", f"got {S} 3 b 1 1", f"got {S} 3 b 1 1")


def delivered_before_a_loss(logs: HandmadeLogs, reported: str = f"lost {S} 2 -") -> None:
    """The reader was given ``a 1 1`` from the tail of S at offset 2, and it had no ack. All replicas of S were lost,
    and the writer sent it again, to T. The other observers came after the loss."""
    first, again = f"got {S} 2 a 1 1", f"got {T} 0 a 1 1"
    logs.replace_everywhere(f"got {S} 3 b 1 1")
    logs.replace_everywhere(f"got {T} 0 b 2 1", again, f"got {T} 1 b 2 1")
    logs.replace_everywhere(f"got {T} 1 a 1 2", f"got {T} 2 a 1 2")
    logs.replace("writers/w0.1", f"acked a 1 1 {S} 2", f"acked a 1 1 {T} 0")
    logs.replace("writers/w0.1", f"acked a 1 2 {T} 1", f"acked a 1 2 {T} 2")
    logs.replace("readers/r1.1", first, reported)
    del logs.files["groups/g/m0.1"], logs.files["groups/g/m1.1"]
    logs.replace("readers/r0.1", again, reported, again)


def delivered_again_without_a_report(logs: HandmadeLogs) -> None:
    delivered_before_a_loss(logs)
    logs.replace("readers/r0.1", f"lost {S} 2 -")


def delivered_again_beside_the_reported_range(logs: HandmadeLogs) -> None:
    delivered_before_a_loss(logs)
    logs.replace("readers/r0.1", f"lost {S} 2 -", f"lost {S} 3 -")


def delivered_again_though_the_first_place_was_acked(logs: HandmadeLogs) -> None:
    delivered_before_a_loss(logs)
    logs.replace("writers/w0.1", f"acked a 1 1 {T} 0", f"acked a 1 1 {S} 2")


def reordered_in_a_segment(logs: HandmadeLogs) -> None:
    logs.replace_everywhere(f"got {S} 0 a 1 0", f"got {S} 0 a 1 1")
    logs.replace_everywhere(f"got {S} 2 a 1 1", f"got {S} 2 a 1 0")


def older_run_after_a_newer_one(logs: HandmadeLogs) -> None:
    logs.replace_everywhere(f"got {S} 3 b 1 1", f"got {S} 3 b 2 1")
    logs.replace_everywhere(f"got {T} 0 b 2 1", f"got {T} 0 b 1 1")


def successor_before_predecessor(logs: HandmadeLogs) -> None:
    lines = logs.files["readers/r0.1"]
    lines[:-1] = [*lines[4:-1], *lines[:4]]


def hole_in_a_segment(logs: HandmadeLogs) -> None:
    logs.replace("readers/r0.1", f"got {S} 3 b 1 1", f"got {S} 4 b 1 1")


def receipt_for_another_place(logs: HandmadeLogs) -> None:
    logs.replace("writers/w0.1", f"acked a 1 0 {S} 0", f"acked a 1 0 {S} 1")


def other_bytes_for_one_reader(logs: HandmadeLogs) -> None:
    logs.replace("readers/r1.1", f"got {S} 3 b 1 1", f"got {S} 3 b 2 1")


def never_sent(logs: HandmadeLogs) -> None:
    logs.replace_everywhere(f"got {T} 1 a 1 2", f"got {T} 1 a 1 2", f"got {T} 2 c 1 0")


def no_outcome(logs: HandmadeLogs) -> None:
    logs.replace("writers/w0.1", f"acked a 1 2 {T} 1")


def failed(logs: HandmadeLogs) -> None:
    logs.replace("writers/w0.1", f"acked a 1 2 {T} 1", "failed a 1 2 DeliveryUnknown")


def fenced_though_nobody_followed(logs: HandmadeLogs) -> None:
    logs.replace("writers/w0.1", f"acked a 1 2 {T} 1", "failed a 1 2 ProducerFenced")


def acked_twice(logs: HandmadeLogs) -> None:
    logs.replace("writers/w0.1", f"acked a 1 2 {T} 1", f"acked a 1 2 {T} 1", f"acked a 1 2 {T} 1")


def writer_without_an_end(logs: HandmadeLogs) -> None:
    logs.replace("writers/w0.1", "end")


def reader_without_an_end(logs: HandmadeLogs) -> None:
    logs.replace("readers/r0.1", "end")


def reader_with_an_error(logs: HandmadeLogs) -> None:
    logs.replace("readers/r0.1", "end", "error CorruptChunk", "end")


def false_report(logs: HandmadeLogs) -> None:
    logs.replace("readers/r0.1", f"got {S} 3 b 1 1", f"lost {S} 3 4", f"got {S} 3 b 1 1")


def delivery_below_an_earlier_commit(logs: HandmadeLogs) -> None:
    logs.replace("groups/g/m1.1", "started 105", "started 135", f"got {S} 0 a 1 0")


def delivery_below_its_own_commit(logs: HandmadeLogs) -> None:
    logs.replace("groups/g/m1.1", "end", f"got {S} 2 a 1 1", "end")


def start_beyond_every_commit(logs: HandmadeLogs) -> None:
    logs.replace("groups/g/m1.1", f"got {S} 2 a 1 1")


def skipped_by_a_member(logs: HandmadeLogs) -> None:
    logs.replace("groups/g/m0.1", f"got {S} 1 b 1 0", f"got {S} 3 b 1 1")


def never_given_to_a_member(logs: HandmadeLogs) -> None:
    lines = logs.files["groups/g/m1.1"]
    logs.files["groups/g/m1.1"] = [line for line in lines if line != f"got {T} 1 a 1 2"]


def more_committed_than_tried(logs: HandmadeLogs) -> None:
    logs.replace("groups/g/m1.1", f"committed 240 {T} 2", f"committed 240 {T} 3")


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lost, "lost"),
        (lost, "lost for the group"),
        (lost_without_a_known_offset, "lost"),
        (lost_to_one_reader, "lost"),
        (lost_outside_of_the_reported_range, "lost"),
        (reported_to_one_reader_only, "lost"),
        (doubled_in_the_log, "doubled"),
        (doubled_for_a_reader, "doubled"),
        (delivered_again_without_a_report, "doubled"),
        (delivered_again_beside_the_reported_range, "doubled"),
        (delivered_again_though_the_first_place_was_acked, "doubled"),
        (reordered_in_a_segment, "reordered"),
        (older_run_after_a_newer_one, "reordered"),
        (successor_before_predecessor, "reordered"),
        (hole_in_a_segment, "skipped"),
        (receipt_for_another_place, "wrong receipt"),
        (other_bytes_for_one_reader, "differs"),
        (never_sent, "never sent"),
        (no_outcome, "no outcome"),
        (failed, "failed"),
        (fenced_though_nobody_followed, "failed"),
        (acked_twice, "malformed"),
        (writer_without_an_end, "unfinished"),
        (reader_without_an_end, "unfinished"),
        (reader_with_an_error, "reader failed"),
        (false_report, "false loss"),
        (delivery_below_an_earlier_commit, "commit went back"),
        (delivery_below_its_own_commit, "commit went back"),
        (start_beyond_every_commit, "skipped"),
        (skipped_by_a_member, "skipped"),
        (never_given_to_a_member, "lost for the group"),
        (more_committed_than_tried, "wrong commit"),
    ],
)
def test_what_is_wrong_is_found(checker: ModuleType, tmp_path: Path, change: Change, kind: str) -> None:
    logs = HandmadeLogs()
    change(logs)
    findings = checker.check(logs.write(tmp_path))
    assert kind in findings.problems, findings.report()


def loss_with_an_end(logs: HandmadeLogs) -> None:
    logs.replace_everywhere(f"got {T} 1 a 1 2", f"lost {T} 1 2")


def open_ended_loss(logs: HandmadeLogs) -> None:
    logs.replace_everywhere(f"got {T} 1 a 1 2", f"lost {T} 1 -")


def possible_loss(logs: HandmadeLogs) -> None:
    logs.replace_everywhere(f"got {T} 1 a 1 2", f"possibly-lost {T} 1")


def loss_of_what_an_early_reader_was_given(logs: HandmadeLogs) -> None:
    for observer in ("readers/r1.1", "groups/g/m1.1"):
        lines = logs.files[observer]
        logs.files[observer] = [f"lost {T} 1 2" if line == f"got {T} 1 a 1 2" else line for line in lines]
    logs.replace("readers/r0.1", "end", f"lost {T} 1 2", "end")


def writer_killed_while_it_wrote(logs: HandmadeLogs) -> None:
    logs.files["writers/w1.1"].append("sent b 1 2")


def old_run_is_fenced(logs: HandmadeLogs) -> None:
    logs.files["writers/w1.1"] += ["failed b 1 1 ProducerFenced", "end"]


def paused_member_is_given_what_it_had_fetched(logs: HandmadeLogs) -> None:
    logs.files["groups/g/m0.1"] += ["refused 300 StaleGeneration", "at 310", f"got {T} 0 b 2 1"]


def lower_commit(logs: HandmadeLogs) -> None:
    """It is answered as committed, because that much is."""
    logs.replace("groups/g/m1.1", "end", f"trying 250 {S} 3", f"committed 260 {S} 3", "end")


@pytest.mark.parametrize(
    "change",
    [
        loss_with_an_end,
        open_ended_loss,
        possible_loss,
        loss_of_what_an_early_reader_was_given,
        delivered_before_a_loss,
        writer_killed_while_it_wrote,
        old_run_is_fenced,
        paused_member_is_given_what_it_had_fetched,
        lower_commit,
    ],
)
def test_what_is_allowed_is_no_problem(checker: ModuleType, tmp_path: Path, change: Change) -> None:
    logs = HandmadeLogs()
    change(logs)
    assert checker.check(logs.write(tmp_path)).report()["problems"] == {}


@pytest.mark.parametrize("change", [loss_with_an_end, open_ended_loss, loss_of_what_an_early_reader_was_given])
def test_no_loss_may_be_reported_if_nothing_can_be_lost(checker: ModuleType, tmp_path: Path, change: Change) -> None:
    logs = HandmadeLogs()
    change(logs)
    assert "reported loss" in checker.check(logs.write(tmp_path), complete=True).problems


def test_no_possible_loss_may_be_reported_either(checker: ModuleType, tmp_path: Path) -> None:
    logs = HandmadeLogs()
    possible_loss(logs)
    assert "reported possible loss" in checker.check(logs.write(tmp_path), complete=True).problems


def test_half_a_line_of_a_killed_process_is_not_read(checker: ModuleType, tmp_path: Path) -> None:
    folder = HandmadeLogs().write(tmp_path)
    with (folder / "writers" / "w1.1.log").open("a") as log:
        log.write("acked b 1 1 t-0-6")
    assert checker.check(folder).report()["problems"] == {}


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(PATH), str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_program_says_what_it_found(tmp_path: Path) -> None:
    """It runs isolated, without the product's packages."""
    logs = HandmadeLogs()
    assert run(logs.write(tmp_path / "good")).returncode == 0
    lost(logs)
    bad = run(logs.write(tmp_path / "bad"))
    assert bad.returncode == 1 and json.loads(bad.stdout)["problems"]["lost"] == 2
    assert run(tmp_path / "nowhere").returncode == 2
    reported = HandmadeLogs()
    open_ended_loss(reported)
    assert run(reported.write(tmp_path / "reported")).returncode == 0
    assert run(tmp_path / "reported", "--complete").returncode == 1
