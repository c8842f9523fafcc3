"""Broken rules of rows with a schema: what ``send`` and ``write`` store, and what readers get."""

from __future__ import annotations

from ..mutation import Mutation

ROW_VALUES = "storage/smq_storage/conversion/row_values.py"
CONVERSION = "storage/smq_storage/conversion/value_conversion.py"
TEST_RULE = "tests/property/test_send_and_write.py::test_both_store_the_very_value_or_both_refuse_it"
TEST_VALUES = "tests/unit/client/producing/test_exact_values.py"
TEST_SEND_MANY = "tests/unit/client/producing/test_send_many.py"
ROW_BATCH = "client/smq/producing/batching/row_batch.py"
TEST_ROW_BATCH = "tests/unit/client/producing/test_row_batch.py"

MUTATIONS = (
    Mutation(
        "take_an_integer_of_any_size",
        "The compiled check takes no integer that its column cannot hold.",
        CONVERSION,
        "type(VALUE) is int and {low} <= VALUE <= {high}",
        "type(VALUE) is int",
        (f"{TEST_VALUES}::test_a_message_with_a_value_that_does_not_fit_is_refused",),
    ),
    Mutation(
        "take_a_time_of_any_zone_as_it_is",
        "A time without a zone is no time in UTC.",
        CONVERSION,
        "is datetime and VALUE.tzinfo is UTC",
        "is datetime",
        (TEST_RULE,),
    ),
    Mutation(
        "round_decimals",
        "A decimal is stored exactly or refused.",
        CONVERSION,
        "traps=[Inexact, InvalidOperation]",
        "traps=[InvalidOperation]",
        (TEST_RULE,),
    ),
    Mutation(
        "ignore_columns_that_the_topic_does_not_have",
        "A row with an unknown column is refused.",
        ROW_VALUES,
        "if not self._known.issuperset(value):",
        "if False:",
        (f"{TEST_VALUES}::test_a_message_with_a_value_that_does_not_fit_is_refused",),
    ),
    Mutation(
        "forget_the_row_of_a_wrong_value",
        "An error of many rows says which row is wrong.",
        "client/smq/producing/batching/batch_builder.py",
        "problem.located(row)",
        "problem.located()",
        (f"{TEST_SEND_MANY}::test_an_error_names_the_column_the_value_and_the_row",),
    ),
    Mutation(
        "give_keys_to_the_messages_before",
        "A message has its own key, also after messages without one.",
        "client/smq/producing/message_batcher.py",
        "                            current.pad_keys()\n",
        "                            pass\n",
        ("tests/unit/client/producing/test_batching.py::test_messages_of_one_batch_have_their_own_keys",),
    ),
    Mutation(
        "give_a_message_the_offset_of_the_first",
        "A message of a batch that was split has its own receipt.",
        "client/smq/producing/delivery_state.py",
        "self._offsets.item(row)",
        "self._offsets.item(0)",
        ("tests/unit/client/test_delivery.py::test_each_row_gets_the_receipt_of_its_sub_batch",),
    ),
    Mutation(
        "import_pandas_with_the_first_batch",
        "Plain messages do not wait for an import of pandas.",
        "storage/smq_storage/chunks/small_arrays.py",
        "    rows = len(values)\n",
        "    rows = len(pa.array(values, _BINARY))\n",
        ("tests/unit/storage/test_small_arrays.py::test_plain_messages_do_not_wait_for_an_import_of_pandas",),
    ),
    Mutation(
        "take_nulls_for_empty_bytes",
        "A message without a key has none.",
        "storage/smq_storage/chunks/small_arrays.py",
        "    if None in values:\n        validity =",
        "    if None in values:\n        _ =",
        ("tests/unit/storage/test_small_arrays.py::test_bytes_with_nulls",),
    ),
    # ---- few messages in lists
    Mutation(
        "keep_the_timestamps_of_all_messages",
        "A message has its own timestamp, also if its batch was split.",
        ROW_BATCH,
        "{new: self.timestamps[row] for new, row in enumerate(rows) if row in self.timestamps}",
        "self.timestamps",
        (f"{TEST_ROW_BATCH}::test_some_rows_of_a_batch_are_those_rows",),
    ),
    Mutation(
        "give_headers_to_the_messages_of_the_first_producer",
        "A message has its own headers, also if it is encoded with those of others.",
        ROW_BATCH,
        "headers.update((first + row, pairs)",
        "headers.update((row, pairs)",
        (f"{TEST_ROW_BATCH}::test_batches_that_are_encoded_together_are_those_that_are_encoded_alone",),
    ),
    Mutation(
        "send_values_that_belong_to_no_message",
        "After an interrupt of send, no message gets the value of another one.",
        "client/smq/producing/batching/batch_builder.py",
        "if len(self.values) != rows * encoder.row_width or",
        "if",
        (f"{TEST_ROW_BATCH}::test_values_that_an_interrupt_has_separated_from_their_messages_are_not_sent",),
    ),
    Mutation(
        "lose_bytes_of_the_budget_when_rows_are_split",
        "The budget gets back what was taken.",
        "client/smq/producing/batching/partitioning.py",
        "    parts[-1][1].cost += left\n",
        "",
        (
            "tests/unit/client/producing/test_partitioning.py"
            "::test_rows_that_are_not_encoded_yet_are_split_in_the_same_way",
        ),
    ),
    # ---- frames and messages
    Mutation(
        "publish_the_index_of_a_frame_that_was_filtered",
        "An index of pandas without a name is no column.",
        "client/smq/producing/encoding/frames.py",
        "return pa.Table.from_pandas(frame, preserve_index=False)",
        "return pa.Table.from_pandas(frame)",
        ("tests/unit/client/producing/test_frames.py::test_only_a_named_index_of_pandas_is_a_column",),
    ),
    Mutation(
        "let_arrow_guess_what_a_dictionary_of_pandas_is",
        "A map of pandas has its own keys, and none of other rows.",
        "client/smq/producing/encoding/frames.py",
        "    if not maps:\n",
        "    if True:\n",
        (
            "tests/unit/client/producing/test_frames_with_maps.py::test_maps_with_different_keys_get_no_keys_of_one_another",
        ),
    ),
    Mutation(
        "count_offsets_anew_in_each_part_of_a_batch",
        "A message has its own offset.",
        "client/smq/batch.py",
        "ROWS_AT_ONCE)), start)",
        "ROWS_AT_ONCE)))",
        ("tests/unit/client/test_batch.py::test_offsets_go_on_beyond_the_rows_that_are_python_objects_at_once",),
    ),
    Mutation(
        "show_errors_under_the_module_that_has_them",
        "A traceback names an error as the program catches it.",
        "client/smq/__init__.py",
        'getattr(_errors, _name).__module__ = "smq"',
        "pass",
        ("tests/unit/client/test_public_surface.py::test_errors_show_the_name_by_which_a_program_catches_them",),
    ),
    Mutation(
        "drop_a_named_range_of_pandas",
        "Each named level of an index is a column.",
        "client/smq/producing/encoding/frames.py",
        "    if not names:\n",
        "    if True:\n",
        ("tests/unit/client/producing/test_frames.py::test_every_named_level_of_an_index_is_a_column",),
    ),
    # ---- values of other systems
    Mutation(
        "accept_times_that_python_does_not_have",
        "A time that readers cannot show is refused before it is sent.",
        "storage/smq_storage/conversion/exact_cast.py",
        "    if wanted in _TIMES and not all_in_python(found):\n",
        "    if False:\n",
        (f"{TEST_VALUES}::test_times_of_tables_that_python_does_not_have_are_refused_with_their_row",),
    ),
    Mutation(
        "look_at_the_year_in_utc_only",
        "A time that is in the year 10000 in its column's zone is refused.",
        "storage/smq_storage/conversion/value_conversion.py",
        "if not 1 < found.year < MAXYEAR:",
        "if False:",
        (f"{TEST_VALUES}::test_a_time_that_is_in_the_year_10000_in_the_zone_of_its_column_is_refused",),
    ),
    Mutation(
        "accept_a_timestamp_in_nanoseconds",
        "A timestamp of a message is in microseconds, of a year that Python has.",
        "storage/smq_storage/conversion/time_conversion.py",
        "if MIN_MICROS <= micros <= MAX_MICROS:",
        "if True:",
        (f"{TEST_VALUES}::test_a_timestamp_that_python_does_not_have_is_refused",),
    ),
    Mutation(
        "take_the_items_of_a_view_in_the_order_of_its_buffer",
        "A view of lists keeps its items.",
        "storage/smq_storage/conversion/exact_cast.py",
        "from_arrays(_offsets(array), array.flatten(), mask=_nulls(array))",
        "from_arrays(_offsets(array), array.values, mask=_nulls(array))",
        (f"{TEST_VALUES}::test_lists_of_all_kinds_keep_their_items",),
    ),
    Mutation(
        "let_nanoseconds_of_int96_wrap",
        "Times of INT96 are exact in all years.",
        "client/smq/producing/encoding/parquet_batches.py",
        "    if not rest.any():\n        return micros\n",
        "",
        ("tests/unit/client/producing/test_parquet_batches.py::test_times_of_all_years_are_exact",),
    ),
    Mutation(
        "open_a_file_with_int96_for_each_row_group",
        "A file with times of INT96 is opened twice, whatever it has.",
        "client/smq/producing/uploads/parquet_files.py",
        "functools.cache(lambda: opened.enter_context(self._open(NANOS)))",
        "lambda: opened.enter_context(self._open(NANOS))",
        (
            "tests/unit/client/producing/test_parquet_batches.py"
            "::test_a_file_is_opened_once_and_once_more_for_int96_and_closed",
        ),
    ),
    Mutation(
        "end_at_a_time_that_python_does_not_have",
        "Whatever time is in a log can be read.",
        "storage/smq_storage/chunks/python_times.py",
        "    except (OverflowError, ValueError):\n        _warn_once()\n",
        "    except ZeroDivisionError:\n",
        ("tests/unit/storage/test_python_times.py::test_python_has_the_years_1_to_9999_of_each_zone",),
    ),
    # ---- types of columns
    Mutation(
        "give_readers_the_stored_types",
        "Readers get the types that the topic declares.",
        "storage/smq_storage/chunks/column_types.py",
        "columns = [column.cast(field.type) for column, field in zip(rows.columns, fields, strict=True)]",
        "return rows",
        (
            "tests/unit/storage/test_schemas.py::"
            "test_readers_get_the_declared_types_of_columns_that_are_stored_as_others",
        ),
    ),
    Mutation(
        "cut_off_what_is_below_a_unit",
        "A time is a whole number of its column's unit.",
        "storage/smq_storage/conversion/time_conversion.py",
        "if rest or not isinstance(units, int)",
        "if not isinstance(units, int)",
        (TEST_RULE,),
    ),
    Mutation(
        "drop_fields_that_a_struct_does_not_have",
        "A value with a field that the struct does not have is refused.",
        "storage/smq_storage/conversion/nested_conversion.py",
        "if unknown:",
        "if False:",
        (TEST_RULE,),
    ),
    Mutation(
        "accept_a_time_zone_that_does_not_exist",
        "A Topic with an unknown time zone is refused.",
        "storage/smq_storage/topic_manifests/fields.py",
        "        _check_zone(zone)",
        "        pass",
        ("tests/unit/storage/test_manifest_table.py::test_a_time_zone_must_exist",),
    ),
    Mutation(
        "show_nanoseconds_as_python_has_them",
        "JSON lines have all digits of a time.",
        "storage/smq_storage/json_lines/rows.py",
        "if shown != field.type:",
        "if False:",
        ("tests/unit/cli/formats/test_json_columns.py::test_nanoseconds_are_written_as_text_and_read_again",),
    ),
)
