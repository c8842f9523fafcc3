"""Broken rules of Spark's side: what is read by whom, exactly once, in which types, and how long it is pinned."""

from __future__ import annotations

from .mutation import Mutation

TYPES = "spark/pyspark_smq/spark_types.py"
PLAN = "spark/pyspark_smq/table/file_plan.py"
RANGES = "spark/pyspark_smq/planning/batch_ranges.py"
PINS = "spark/pyspark_smq/table/pins.py"
SIZES = "spark/pyspark_smq/planning/partition_sizes.py"
SHARED_PIN = "spark/pyspark_smq/planning/shared_pin.py"
PARTITION = "spark/pyspark_smq/source/partition_reader.py"
STREAM_TASKS = "spark/pyspark_smq/planning/stream_tasks.py"
STREAM_PLAN = "spark/pyspark_smq/planning/stream_plan.py"
STREAM_POSITIONS = "spark/pyspark_smq/planning/stream_positions.py"
WANTED = "spark/pyspark_smq/planning/wanted.py"
CODEC = "storage/smq_storage/chunks/parquet_codec.py"
FILTERS = "spark/pyspark_smq/source/pushed_filters.py"
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
    Mutation(
        "keep_the_pin_of_a_read_that_was_not_planned",
        "A read that fails while it is planned lets the files go.",
        SHARED_PIN,
        "        with pinned:\n            raise\n",
        "        raise\n",
        (f"{TESTS}/test_shared_pin.py::test_a_read_that_fails_while_it_is_planned_leaves_no_pin",),
    ),
    # ---- the batch source
    Mutation(
        "drop_the_rest_of_a_file_that_is_divided",
        "The parts of a file that is divided have all of its messages.",
        SIZES,
        "for n in range(count + 1)]",
        "for n in range(max(2, count))]",
        (f"{TESTS}/test_partition_sizes.py::test_every_message_is_in_one_partition_in_order",),
    ),
    Mutation(
        "number_messages_without_those_that_are_left_out",
        "A message keeps its offset, whatever a bound of time leaves out before it.",
        PARTITION,
        "yield first + start, table.slice(start, stop - start)",
        "yield first, table.slice(start, stop - start)",
        (f"{TESTS}/test_pushed_filters.py::test_messages_keep_their_offsets_when_others_are_left_out",),
    ),
    Mutation(
        "include_the_end_of_the_time",
        "An end is exclusive.",
        PARTITION,
        "wanted &= times < bounds.stop",
        "wanted &= times <= bounds.stop",
        (f"{TESTS}/test_pushed_filters.py::test_messages_keep_their_offsets_when_others_are_left_out",),
    ),
    Mutation(
        "leave_out_files_at_the_bound_of_a_filter",
        "A filter of the latest time includes that time.",
        FILTERS,
        "timestamp_of(high).micros + 1 if",
        "timestamp_of(high).micros if",
        (f"{TESTS}/test_pushed_filters.py::test_bounds",),
    ),
    Mutation(
        "take_an_ended_pin_for_a_loss",
        "A pin that has ended explains that files are gone.",
        SHARED_PIN,
        "        if self._pin_id is not None:\n            self._renew(self._pin_id)\n        raise error\n",
        "        raise error\n",
        (f"{TESTS}/test_shared_pin.py::test_an_ended_pin_is_the_reason_for_what_is_gone",),
    ),
    Mutation(
        "renew_pins_later_than_they_live",
        "A task renews its pin within each third of the lifetime that the read chose.",
        SHARED_PIN,
        "self._renew_after = lifetime / SECOND / 3",
        "self._renew_after = DEFAULT_LIFETIME / SECOND / 3",
        (f"{TESTS}/test_shared_pin.py::test_a_task_renews_it_within_each_third_of_its_lifetime",),
    ),
    Mutation(
        "leave_out_files_with_the_first_message_that_is_wanted",
        "A file whose last message is at the start of the wanted time is read.",
        WANTED,
        "self.start is not None and largest is not None and largest < self.start",
        "self.start is not None and largest is not None and largest <= self.start",
        (f"{TESTS}/test_wanted.py::test_times",),
    ),
    Mutation(
        "write_chunks_without_a_page_index",
        "A reader that wants some messages of a chunk finds their pages.",
        CODEC,
        "        write_page_index=True,\n",
        "",
        ("tests/unit/storage/test_parquet_codec.py::test_readers_find_pages_by_an_index",),
    ),
    # ---- sinks
    Mutation(
        "upload_parts_that_become_two_files",
        "A part of a task's rows is one upload, because brokers work for each one.",
        "spark/pyspark_smq/sink/staging.py",
        "if collected and size + batch.nbytes > UPLOAD_BYTES:",
        "if size >= UPLOAD_BYTES:",
        (f"{TESTS}/test_staging.py::test_no_part_is_larger_than_an_upload",),
    ),
    # ---- streams
    Mutation(
        "put_all_segments_of_a_micro_batch_into_one_task",
        "Segments with many messages have tasks of their own.",
        STREAM_TASKS,
        "if tasks and enough and rows + more <= max_rows:",
        "if tasks and enough:",
        (f"{TESTS}/test_stream_tasks.py::test_small_groups_share_a_task_and_large_ones_have_their_own",),
    ),
    Mutation(
        "share_tasks_whatever_the_query_wants",
        "A query gets as many tasks as it wants, if there are enough segments.",
        STREAM_TASKS,
        "enough = len(tasks) + len(groups) - number > (min_tasks or 1)",
        "enough = True",
        (f"{TESTS}/test_stream_tasks.py::test_there_are_as_many_tasks_as_are_wanted",),
    ),
    Mutation(
        "poll_at_the_same_rate_while_nothing_comes",
        "A query without new messages polls less and less often.",
        STREAM_PLAN,
        "self._sleep(self._idle.increase())",
        "self._sleep(IDLE_SECONDS)",
        (f"{TESTS}/test_stream_plan.py::test_a_query_polls_less_often_while_nothing_comes",),
    ),
    Mutation(
        "stay_slow_when_messages_come_again",
        "A query polls often again once messages come.",
        STREAM_PLAN,
        "        self._idle.reset()\n",
        "",
        (f"{TESTS}/test_stream_plan.py::test_a_query_polls_less_often_while_nothing_comes",),
    ),
    Mutation(
        "continue_from_positions_of_a_deleted_topic",
        "A checkpoint of a topic that was deleted and created again is refused.",
        STREAM_POSITIONS,
        "        if found.uid != location.uid:\n",
        "        if False:\n",
        (f"{TESTS}/test_stream_positions.py::test_a_checkpoint_of_another_topic_is_refused",),
    ),
    Mutation(
        "continue_from_positions_of_another_topic",
        "A checkpoint of another topic is refused.",
        STREAM_POSITIONS,
        "        if found.topic != location.topic:\n",
        "        if False:\n",
        (f"{TESTS}/test_stream_positions.py::test_a_checkpoint_of_another_topic_is_refused",),
    ),
    Mutation(
        "count_the_bytes_of_former_uploads",
        "An upload has as many rows as one may have, also after another one.",
        "spark/pyspark_smq/sink/staging.py",
        "            collected, size = [], 0\n        collected",
        "            collected = []\n        collected",
        (f"{TESTS}/test_staging.py::test_no_part_is_larger_than_an_upload",),
    ),
    Mutation(
        "write_a_transaction_without_a_name_as_none",
        "A write with txnVersion is done once, or refused.",
        "spark/pyspark_smq/options.py",
        'name = self._values.get("txnAppId")\n',
        'name = self._values.get("txnAppId") or None\n',
        ("tests/unit/spark/test_options.py",),
    ),
)
