"""Broken rules of Spark's side: what is read by whom, exactly once, in which types, and how long it is pinned."""

from __future__ import annotations

from .mutation import Mutation

TYPES = "spark/pyspark_smq/spark_types.py"
PLAN = "spark/pyspark_smq/table/file_plan.py"
RANGES = "spark/pyspark_smq/planning/batch_ranges.py"
PINS = "spark/pyspark_smq/table/pins.py"
TESTS = "tests/unit/spark"

MUTATIONS = (
    # ---- types
    Mutation(
        "take_wider_rows_than_were_planned",
        "A running query refuses rows of a wider type than it was planned with.",
        TYPES,
        "    _check_types(table.schema, schema, wanted)\n",
        "",
        (f"{TESTS}/test_spark_types.py::test_wider_rows_than_were_planned_are_refused_with_the_difference",),
    ),
    Mutation(
        "count_offsets_of_each_batch_from_the_table",
        "Each batch continues the offsets of the one before.",
        TYPES,
        "columns.append(_offsets(first + start, count))",
        "columns.append(_offsets(first, count))",
        (f"{TESTS}/test_spark_types.py::test_offsets_and_segment_are_added_and_batches_are_small",),
    ),
    Mutation(
        "let_a_topic_hide_its_places",
        "A topic with a column of Spark's own name is refused.",
        TYPES,
        "if name.lower() in (SEGMENT, OFFSET)]",
        "if name in (SEGMENT, OFFSET)]",
        (f"{TESTS}/test_spark_types.py::test_a_topic_with_a_column_of_sparks_name_cannot_be_read",),
    ),
    # ---- the plan of a table
    Mutation(
        "read_files_with_large_values_natively",
        "Spark's own reader does not know values that are in objects of their own.",
        PLAN,
        "    if file.large_values or is_hidden(file.path):\n",
        "    if is_hidden(file.path):\n",
        (f"{TESTS}/test_file_plan.py::test_files_with_large_values_are_read_by_the_data_source",),
    ),
    Mutation(
        "let_spark_hide_files",
        "A file whose name Spark hides is read in another way.",
        PLAN,
        "    if file.large_values or is_hidden(file.path):\n",
        "    if file.large_values:\n",
        (f"{TESTS}/test_file_plan.py::test_files_whose_names_spark_hides_are_read_by_the_data_source",),
    ),
    Mutation(
        "read_parts_of_uploads_from_their_beginning",
        "The first message of a part of an upload is at its own row.",
        PLAN,
        "row = file.first_row + start - file.first",
        "row = file.first_row",
        (f"{TESTS}/test_file_plan.py::test_parts_of_uploads_are_row_ranges",),
    ),
    Mutation(
        "forget_the_tail_of_a_segment",
        "What is in no file yet is read, too.",
        PLAN,
        "        plan.leave(segment, at, end)\n",
        "",
        (f"{TESTS}/test_file_plan.py::test_whole_chunks_are_scanned_and_the_tail_is_the_rest",),
    ),
    # ---- positions
    Mutation(
        "read_again_what_is_before_a_position",
        "Segments before one with a position count as read.",
        RANGES,
        "begin = known if name in read_before else first.get(name, 0)",
        "begin = first.get(name, 0)",
        (f"{TESTS}/test_batch_ranges.py::test_two_reads_that_share_a_position_read_everything_once",),
    ),
    Mutation(
        "say_nothing_of_lost_messages",
        "A read that would have had lost messages fails.",
        RANGES,
        "            losses.append(_lost(entry))\n",
        "            pass\n",
        (f"{TESTS}/test_batch_ranges.py::test_lost_messages_end_the_read_only_if_it_would_have_them",),
    ),
    # ---- pins
    Mutation(
        "keep_pins_of_stopped_sessions",
        "A pin ends with its session.",
        PINS,
        "        if pin.is_over():\n            _release(pin.read)\n            return False\n",
        "",
        (f"{TESTS}/test_pins.py::test_it_ends_with_its_session",),
    ),
    Mutation(
        "renew_pins_for_ever",
        "A pin is not renewed beyond the age that was chosen for it.",
        PINS,
        "        if self._clock() >= pin.ends_at:\n",
        "        if False:\n",
        (f"{TESTS}/test_pins.py::test_it_ends_when_it_is_as_old_as_it_may_become",),
    ),
)
