"""Batches of rows in lists, as producers make them."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from smq.producing.batching.batch_builder import BatchBuilder, check_value
from smq.producing.batching.row_batch import RowBatch
from smq.producing.delivery_state import OPEN_ROW_COUNT, DeliveryState
from smq.producing.encoding.batch_encoder import BatchEncoder
from smq.producing.encoding.keys import KeylessPartitioner
from smq_core.model.entities import Column, Topic, TopicSpec

PARTITIONS = 64
PLAIN = BatchEncoder(Topic("default/plain", "u", TopicSpec(partitions=PARTITIONS)))
COLUMNS = (Column("name", "string"), Column("delay", "float64", nullable=True), Column("stop", "int64"))
TYPED = BatchEncoder(Topic("default/typed", "u", TopicSpec(partitions=PARTITIONS, schema=COLUMNS, key="stop")))

Row = tuple[bytes | None, int, int | None, bool]


def batch_of(rows: Sequence[Row], encoder: BatchEncoder, keyless: int = 0) -> RowBatch:
    """Each row has a key, the time when it was sent, the timestamp that was given, and whether it has a header."""
    builder = BatchBuilder(encoder, DeliveryState(OPEN_ROW_COUNT, threading.Lock()), 0.0)
    for number, (key, now, timestamp, has_header) in enumerate(rows):
        if timestamp is not None:
            builder.timestamps[number] = timestamp
        if has_header:
            builder.headers[number] = [("number", b"%d" % number)]
        if encoder.typed:
            value, _ = check_value({"name": repr(key), "delay": now / 7 if has_header else None, "stop": now}, encoder)
            builder.add(value, None, now)
        else:
            builder.add(None if has_header else b"%d" % now, key, now)
    return builder.to_rows(KeylessPartitioner(PARTITIONS, keyless))
