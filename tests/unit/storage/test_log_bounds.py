"""Lines of logs are short and harmless, whatever is in their fields."""

import io
import json

import structlog

from smq_storage.process.log_bounds import bound_fields


def logged(**fields: object) -> str:
    out = io.StringIO()
    processors = [structlog.processors.format_exc_info, bound_fields, structlog.processors.JSONRenderer()]
    structlog.wrap_logger(structlog.PrintLogger(out), processors=processors).info("event", **fields)
    return out.getvalue()


def test_a_field_has_at_most_a_thousand_characters() -> None:
    line = logged(error="x" * 30_000_000, names=["y" * 5000] * 1000, inner={"z" * 5000: "\x1b[2J"}, count=7)
    found = json.loads(line)
    assert len(found["error"]) == 1000 and found["count"] == 7
    assert len(found["names"]) == 200 and max(map(len, found["names"])) == 1000
    assert list(found["inner"].values()) == [r"\x1b[2J"]


def test_a_traceback_keeps_its_lines() -> None:
    try:
        raise ValueError("\x1b[2J" + "x" * 100_000)
    except ValueError:
        found = json.loads(logged(exc_info=True))
    assert found["exception"].startswith("Traceback") and "\n" in found["exception"]
    assert len(found["exception"]) <= 16_000 and "\x1b" not in found["exception"]
