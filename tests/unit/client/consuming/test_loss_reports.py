"""The losses that a reader reports: as the segment's range says, and each part once."""

from __future__ import annotations

import pytest

from smq.consuming.reader_losses import ReaderLosses, data_lost, loss_for_reader
from smq_core.model.loss import Loss


@pytest.mark.parametrize(
    ("position", "lost", "reported"),
    [
        (5, None, None),
        (5, Loss(5, 5), None),
        (5, Loss(5, 7), Loss(5, 7)),
        (3, Loss(5, 7), Loss(5, 7)),
        (9, Loss(5, 7), Loss(5, 9)),  # it received messages above the watermark that the sealer knew
        (2, Loss(0, 1), Loss(0, 2)),
        (5, Loss(5, 7, True), Loss(5, 7, True)),
        (5, Loss(5, 5, True), Loss(5, 5, True)),
        (6, Loss(5, 5, True), Loss(5, 6, True)),
    ],
)
def test_losses_reported_to_a_reader(position: int, lost: Loss | None, reported: Loss | None) -> None:
    assert loss_for_reader(position, lost) == reported


@pytest.mark.parametrize(
    ("known", "loss", "reported"),
    [
        ([], Loss(5, 9), (5, 9, False)),
        ([Loss(5, 9)], Loss(5, 9), None),
        ([Loss(5, 9, True)], Loss(5, 9), None),
        ([Loss(5, 9)], Loss(5, 12, True), (9, 12, True)),
        ([Loss(5, 9)], Loss(5, 9, True), (9, 9, True)),
        ([Loss(5, 9, True)], Loss(5, 12, True), (9, 12, True)),
        ([Loss(5, 5, True)], Loss(5, 5, True), None),
        ([Loss(5, 5, True)], Loss(5, 8, True), (5, 8, True)),
        ([Loss(5, 5, True), Loss(5, 8, True)], Loss(5, 8, True), None),
        ([Loss.from_offset(5, None)], Loss(5, 8), (5, 8, False)),
        ([Loss(5, 8)], Loss(2, 8), (2, 8, False)),
    ],
)
def test_each_part_of_a_loss_is_reported_once(
    known: list[Loss], loss: Loss, reported: tuple[int, int, bool] | None
) -> None:
    losses = ReaderLosses()
    for earlier in known:
        losses.ignore("s", earlier)
    assert losses.record("s", loss) == (reported is not None)
    error = losses.take()
    assert (None if error is None else (error.start, error.stop, error.at_least)) == reported
    assert losses.take() is None and not losses.record("s", loss)
    assert losses.record("other", loss), "another segment"


@pytest.mark.parametrize(
    ("loss", "certain", "text"),
    [
        (Loss(5, 9), True, "messages 5..8 of s are gone"),
        (Loss(5, 9, True), True, "messages 5..8 of s, and possibly more after them, are gone"),
        (Loss.from_offset(5, None), False, "messages of s from offset 5 on may be lost"),
        (Loss(5, 5, True), False, "messages of s from offset 5 on may be lost"),
    ],
)
def test_an_error_says_how_much_is_known(loss: Loss, certain: bool, text: str) -> None:
    error = data_lost("s", loss)
    assert (error.start, error.stop, error.at_least, error.certain) == (loss.start, loss.stop, loss.at_least, certain)
    assert text in error.message
