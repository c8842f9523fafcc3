"""Broken rules of the command line: what is committed, and what becomes of messages in files."""

from __future__ import annotations

from ..mutation import Mutation

WRITER = "client/smq/cli/files/message_writer.py"
TEST_CONSUME = "tests/unit/cli/test_consume.py"
SINKS = "client/smq/cli/files/sinks.py"
TEST_CSV = "tests/unit/cli/formats/test_csv_rows.py"
TEST_OUTPUT = "tests/unit/cli/formats/test_output_formats.py"
MESSAGES = "client/smq/cli/files/json_lines/messages.py"
TEST_MESSAGES = "tests/unit/cli/formats/test_json_messages.py"

WAITING = "client/smq/cli/connection/waiting.py"
FILER_WATCH = "client/smq/cli/connection/filer_watch.py"
TEST_WAITING = "tests/unit/cli/test_waiting.py"
PLUGIN = "client/smq/cli/kubectl_plugin.py"
TEST_PLUGIN = "tests/unit/cli/test_kubectl_plugin.py"
FORWARD = "client/smq/cli/connection/port_forward.py"
TEST_FORWARD = "tests/unit/cli/test_port_forward.py"
FILES = "client/smq/data_files.py"
TEST_FILES = "tests/unit/client/test_data_files.py"

LOADER = "client/smq/cli/command_loader.py"
APP = "client/smq/cli/app.py"
TEST_IMPORTS = "tests/unit/cli/test_imports.py"

CHANGES = "client/smq/cli/commands/topic_changes.py"
TEST_CHANGES = "tests/unit/cli/test_topic_changes.py"
EXTRAS = "storage/smq_storage/process/extras.py"
TEST_ADVICE = "tests/unit/docs/test_install_advice.py"

MUTATIONS = (
    Mutation(
        "end_a_trim_after_one_pass",
        "A trim of many segments is repeated until the leader has no more.",
        "client/smq/admin.py",
        "            if not reply.more:\n                return TrimmedTopic(",
        "            if True:\n                return TrimmedTopic(",
        ("tests/unit/client/test_trim_topic.py::test_a_trim_goes_on_while_the_leader_says_that_there_is_more",),
    ),
    Mutation(
        "publish_what_follows_an_open_quote_as_one_value",
        "CSV that ends inside of a quoted field is refused.",
        "client/smq/cli/files/blocks.py",
        "        check_end(rest)\n",
        "",
        (f"{TEST_CSV}::test_a_quote_that_is_never_closed_does_not_make_records_one_value",),
    ),
    Mutation(
        "count_the_rows_of_a_block_of_csv",
        "An error in a CSV names the row of the file.",
        "client/smq/cli/files/csv_rows.py",
        "        self._rows += cells.num_rows\n",
        "",
        (f"{TEST_CSV}::test_rows_are_counted_from_the_beginning_of_the_file",),
    ),
    Mutation(
        "choose_new_ports_at_every_start",
        "A folder of `smq dev` keeps its ports.",
        "client/smq/cli/dev/cluster.py",
        "is_free = former_host == host and are_free([former_port], host)",
        "is_free = False",
        ("tests/unit/cli/test_dev.py::test_a_folder_keeps_its_ports_unless_others_have_them",),
    ),
    Mutation(
        "wait_for_messages_that_were_dropped_before_the_start",
        "A reader is at the end of a segment all of whose messages are older than its start.",
        "client/smq/consumer.py",
        "max(self._reads.position(f.segment), f.dropped_upto) >= f.watermark",
        "self._reads.position(f.segment) >= f.watermark",
        ("tests/unit/client/consuming/test_consumer.py::test_messages_before_the_start_do_not_keep_it_from_the_end",),
    ),
    Mutation(
        "connect_to_a_port_modulo_65536",
        "A port that cannot be is named.",
        "client/smq/cli/connection/reachability.py",
        "if port == 0:",
        "if False:",
        ("tests/unit/cli/test_reachability.py::test_a_port_that_cannot_be_is_named",),
    ),
    Mutation(
        "apply_what_loses_something_without_a_question",
        "A change that loses something is confirmed first.",
        CHANGES,
        "    if not risky or yes:\n",
        "    if True:\n",
        (f"{TEST_CHANGES}::test_a_change_that_loses_something_is_not_applied_without_a_confirmation",),
    ),
    Mutation(
        "advise_a_name_that_nobody_owns",
        "The package is not installed by its name, which is not at an index.",
        EXTRAS,
        "pip install '.[{extra}]' in a clone",
        "pip install 'seaweedmq[{extra}]'",
        (f"{TEST_ADVICE}::test_the_advice_names_a_clone_and_the_wheel_of_this_version",),
    ),
    Mutation(
        "load_all_commands",
        "A command loads its own modules only.",
        LOADER,
        "        self._loaded: dict[str, Any] = {}\n",
        "        self._loaded: dict[str, Any] = {name: _load(name, target) for name, target in targets.items()}\n",
        (f"{TEST_IMPORTS}::test_one_command_does_not_load_the_others",),
    ),
    Mutation(
        "check_values_that_were_not_given",
        "A command does not import what checks of values need, if none is needed.",
        APP,
        "    defer_checks()\n",
        "",
        (f"{TEST_IMPORTS}::test_a_command_that_only_calls_the_leader_loads_nothing_else",),
    ),
    Mutation(
        "wait_without_a_cause",
        "A consumer that waits says that it is the filer.",
        FILER_WATCH,
        "        client.check_filer(topic, seconds)\n",
        "        pass\n",
        (f"{TEST_WAITING}::test_a_consumer_says_that_it_is_the_filer",),
    ),
    Mutation(
        "poll_without_end",
        "A reading with a timeout ends at the end of the topic.",
        WAITING,
        "                if consumer.at_end():\n                    return None\n",
        "",
        (f"{TEST_WAITING}::test_a_poll_ends_after_its_timeout",),
    ),
    Mutation(
        "end_a_reading_that_fails_without_a_word",
        "A reading that fails is an error and not the end of the topic.",
        WAITING,
        "                self._check_more(consumer, waited)\n",
        "                return None\n",
        (f"{TEST_WAITING}::test_a_reading_that_fails_is_an_error_and_not_the_end",),
    ),
    Mutation(
        "forward_to_the_leader_only",
        "kubectl smq prefers the relay, which reaches brokers and filer too.",
        PLUGIN,
        "return max(ports, key=lambda port: port.relay)",
        "return min(ports, key=lambda port: port.relay)",
        (f"{TEST_PLUGIN}::test_a_relay_is_preferred_because_it_reaches_brokers_and_filer",),
    ),
    Mutation(
        "forward_to_the_address_of_the_user",
        "kubectl smq connects to the release and not to an address from the environment.",
        PLUGIN,
        '            os.environ.pop("SMQ_VIA", None)\n',
        "",
        (f"{TEST_PLUGIN}::test_addresses_of_other_clusters_are_not_used",),
    ),
    Mutation(
        "forward_to_one_pod_only",
        "A forward outlives the Pod that kubectl has chosen.",
        FORWARD,
        "            if not self._local_port:\n                self._started.put(None)\n                return\n",
        "            self._started.put(None)\n            return\n",
        (f"{TEST_FORWARD}::test_it_is_started_again_at_the_same_address",),
    ),
    Mutation(
        "share_ctrl_c_with_kubectl",
        "Ctrl-C ends the command first, and then the forward that it ends through.",
        FORWARD,
        "            process_group=0,  # Ctrl-C ends the command, which still needs its connections to end in order\n",
        "",
        (f"{TEST_PLUGIN}::test_a_signal_ends_the_command_first_and_then_the_forward",),
    ),
    Mutation(
        "whole_uploads_in_the_query",
        "Of an upload the query reads only the rows that the log refers to.",
        FILES,
        '"  AND m.file_row_number < f.first_row + f.row_count"',
        '"  AND m.file_row_number < f.first_row + f.row_count + 1"',
        (f"{TEST_FILES}::test_the_query_reads_a_part_of_an_upload",),
    ),
    Mutation(
        "partial_uploads_as_a_dataset",
        "A dataset cannot leave rows of an upload out, so it is refused.",
        FILES,
        "        self._check_whole_files()\n",
        "",
        (f"{TEST_FILES}::test_a_part_of_an_upload_is_no_dataset",),
    ),
    Mutation(
        "commit_before_the_file_is_whole",
        "A Parquet file is readable only when it is complete, so its messages are committed only then.",
        SINKS,
        "    flushed = False\n\n    def __init__(self, stream: IO[bytes], shown: Shown, schema",
        "    flushed = True\n\n    def __init__(self, stream: IO[bytes], shown: Shown, schema",
        (f"{TEST_CONSUME}::test_a_parquet_file_is_whole_before_its_messages_are_committed",),
    ),
    Mutation(
        "commit_lines_that_are_not_flushed",
        "Lines are in the file before their batch is committed.",
        SINKS,
        'self._line(row, plain) + b"\\n" for row in python_rows(shown)))\n        self.stream.flush()\n',
        'self._line(row, plain) + b"\\n" for row in python_rows(shown)))\n',
        (f"{TEST_CONSUME}::test_lines_are_in_the_file_before_their_batch_is_committed",),
    ),
    Mutation(
        "commit_a_batch_that_was_written_in_part",
        "With --max only the messages that were written are committed.",
        WRITER,
        "self._positions |= dict(batch.positions) | {batch.segment: next_offset}",
        "self._positions |= dict(batch.positions)",
        (f"{TEST_CONSUME}::test_only_the_messages_that_were_written_are_committed",),
    ),
    Mutation(
        "commit_without_a_group",
        "Without a group nothing is committed.",
        WRITER,
        "        if self._commits and self._positions:\n",
        "        if self._positions:\n",
        (f"{TEST_CONSUME}::test_without_a_group_nothing_is_committed",),
    ),
    Mutation(
        "leave_what_a_closed_file_has_uncommitted",
        "What a file has is committed when the command is ended.",
        WRITER,
        "                self._commit_if_possible(consumer)\n",
        "                pass\n",
        (f"{TEST_CONSUME}::test_what_a_file_has_is_committed_when_the_command_is_ended",),
    ),
    Mutation(
        "interrupt_the_write_of_a_parquet_file",
        "Messages are in a Parquet file and committed, or neither, when the command is interrupted.",
        WRITER,
        "with defer_signals() if self._commits and not self._sink.flushed else contextlib.nullcontext():",
        "with contextlib.nullcontext():",
        (f"{TEST_CONSUME}::test_a_parquet_file_that_is_interrupted_has_what_is_committed",),
    ),
    Mutation(
        "give_each_part_a_schema",
        "All parts of a Parquet file have one schema.",
        "client/smq/cli/files/parquet_parts.py",
        "self._shown, self._schema)",
        "self._shown, None)",
        (f"{TEST_CONSUME}::test_parts_after_a_change_of_the_schema_are_refused_and_the_others_are_one_file",),
    ),
    Mutation(
        "write_over_parts_of_a_process_that_was_killed",
        "Completed parts of a process that was killed stay.",
        "client/smq/cli/files/parquet_parts.py",
        "next(name for name in names if not name.exists())",
        "next(names)",
        (f"{TEST_CONSUME}::test_parts_of_a_process_that_was_killed_stay",),
    ),
    Mutation(
        "complete_no_part_at_the_end_of_a_segment",
        "A Parquet file is completed, and committed, at the end of a segment.",
        "client/smq/cli/files/parquet_parts.py",
        "        if self._part is not None and self._has_rows:\n",
        "        if self._part is None:\n",
        (f"{TEST_CONSUME}::test_the_end_of_a_segment_is_committed_while_a_parquet_file_is_written",),
    ),
    Mutation(
        "store_a_tombstone_as_an_empty_message",
        "A null value is a tombstone and not an empty message.",
        MESSAGES,
        "return None if value is None else to_bytes(value if isinstance(value, str) else _as_written(line, name))",
        'return to_bytes("" if value is None else value if isinstance(value, str) else _as_written(line, name))',
        (f"{TEST_MESSAGES}::test_null_is_a_tombstone_and_not_an_empty_message",),
    ),
    Mutation(
        "drop_headers_of_json_messages",
        "The headers of a message in JSON are stored.",
        MESSAGES,
        'headers = headers_of(found.get("headers"))',
        "headers = None",
        (f"{TEST_MESSAGES}::test_headers_are_a_mapping_or_pairs",),
    ),
    Mutation(
        "accept_fields_that_no_message_has",
        "A field that a message does not have is refused and not dropped without a word.",
        MESSAGES,
        "        if unknown and not",
        "        if len(unknown) > 100 and not",
        (f"{TEST_MESSAGES}::test_a_line_that_is_no_message_is_refused_with_its_number",),
    ),
    Mutation(
        "show_no_headers_with_meta",
        "With --meta the headers of messages are shown.",
        SINKS,
        "    if meta:\n        return rows\n",
        '    if meta:\n        return rows.drop_columns(["headers"] if "headers" in rows.column_names else [])\n',
        (f"{TEST_OUTPUT}::test_meta_shows_headers_and_a_message_without_any_has_no_such_field",),
    ),
    Mutation(
        "take_quoted_cells_of_csv_for_null",
        "A quoted cell of CSV is text.",
        "client/smq/cli/files/csv_rows.py",
        "quoted_strings_can_be_null=False",
        "quoted_strings_can_be_null=True",
        (f"{TEST_CSV}::test_only_the_empty_field_without_quotes_is_null",),
    ),
    Mutation(
        "skip_empty_lines_of_a_single_column",
        "An empty line is the null of a single column.",
        "client/smq/cli/files/csv_rows.py",
        "ignore_empty_lines=len(names) > 1",
        "ignore_empty_lines=True",
        (f"{TEST_CSV}::test_only_the_empty_field_without_quotes_is_null",),
    ),
    Mutation(
        "take_an_empty_line_for_the_header_of_csv",
        "The header of CSV is the first line that is not empty.",
        "client/smq/cli/files/csv_rows.py",
        "names = next(filter(None, records), [])",
        "names = next(records, [])",
        (f"{TEST_CSV}::test_empty_lines_before_the_header_are_no_header",),
    ),
    Mutation(
        "take_hexadecimal_numbers",
        "A cell of CSV is a number in decimal digits.",
        "client/smq/cli/files/csv_rows.py",
        "    if pa.types.is_integer(type_) and pc.any",
        "    if False and pc.any",
        (f"{TEST_CSV}::test_a_cell_that_does_not_fit_is_refused_with_row_and_column",),
    ),
    Mutation(
        "cut_csv_inside_of_quotes",
        "A quoted newline ends no record.",
        "client/smq/cli/files/blocks.py",
        "            self._quoted, at = True, found.end()",
        "            at = found.end()",
        ("tests/unit/cli/formats/test_blocks.py::test_a_block_has_whole_records_however_the_bytes_arrive",),
    ),
    Mutation(
        "take_two_objects_of_a_line",
        "A line of JSON is one object.",
        "client/smq/cli/files/json_lines/columns.py",
        "        if found.num_rows != objects:",
        "        if False:",
        ("tests/unit/cli/formats/test_json_columns.py::test_a_line_that_is_no_object_is_refused_wherever_it_is",),
    ),
    Mutation(
        "search_usual_lines_of_json_by_patterns",
        "Lines that all begin with an object are counted, which is faster.",
        "client/smq/cli/files/json_lines/columns.py",
        'if objects == block.count(b"\\n") + (not block.endswith(b"\\n")):',
        "if False:",
        ("tests/unit/cli/formats/test_json_columns.py::test_usual_lines_are_counted_without_patterns",),
    ),
    Mutation(
        "leave_out_columns_that_the_topic_does_not_have",
        "A misspelt column is an error.",
        "client/smq/cli/files/column_matching.py",
        "    if unknown:",
        "    if False:",
        ("tests/unit/cli/formats/test_row_conversion.py::test_columns_that_the_topic_does_not_have_are_refused",),
    ),
    Mutation(
        "leave_out_messages_of_which_nothing_is_known",
        "An interrupt of a publish says what is published, and what may be.",
        "client/smq/cli/files/table_publisher.py",
        "if unknown := self._sent - self.written:",
        "if unknown := 0:",
        (
            "tests/unit/cli/test_table_publisher.py::test_an_interrupt_says_what_is_durable_and_does_not_wait_for_the_rest",
        ),
    ),
    Mutation(
        "forget_the_rows_that_a_resume_left_out",
        "A second resume continues after the rows of all runs before it.",
        "client/smq/cli/files/table_publisher.py",
        "done = self._rows.skip + self.written",
        "done = self.written",
        ("tests/unit/cli/test_table_publisher.py::test_a_second_resume_continues_after_the_rows_of_both",),
    ),
    Mutation(
        "show_key_and_value_of_a_schema_as_a_plain_message",
        "Columns named key and value are columns.",
        "storage/smq_storage/chunks/schemas.py",
        "return [(field.name, declared_type(field)) for field in body] == [",
        'return [field.name for field in body] == ["key", "value"] or [] == [',
        (
            "tests/unit/client/test_batch.py::test_columns_named_key_and_value_are_columns",
            f"{TEST_OUTPUT}::test_columns_named_key_and_value_are_columns",
        ),
    ),
    Mutation(
        "accept_names_that_tools_add",
        "A name that files or tools add is no column of a topic, in any case.",
        "storage/smq_storage/topic_manifests/fields.py",
        "if value.lower() in RESERVED_COLUMNS:",
        "if value in RESERVED_COLUMNS[:4]:",
        ("tests/unit/storage/test_manifest_parser.py",),
    ),
    Mutation(
        "write_times_to_the_millisecond",
        "JSON loses no digit of a time.",
        "client/smq/cli/output/formatting.py",
        'timespec="microseconds"',
        'timespec="milliseconds"',
        (f"{TEST_OUTPUT}::test_json_loses_no_digit_of_a_time_or_a_number",),
    ),
    Mutation(
        "take_the_offsets_of_other_partitions",
        "With --partition each message has its own offset.",
        WRITER,
        "pc.add(chosen, batch.first_offset), done",
        "batch.first_offset, done",
        (f"{TEST_CONSUME}::test_only_messages_of_the_partition_are_written_with_their_own_offsets",),
    ),
    Mutation(
        "write_the_names_of_csv_columns_again_and_again",
        "A CSV file has one line of names.",
        SINKS,
        "include_header=not self._columns",
        "include_header=True",
        (f"{TEST_OUTPUT}::test_csv_has_one_line_of_names_and_the_same_columns_throughout",),
    ),
    Mutation(
        "say_where_the_document_begins_for_every_mistake",
        "A mistake of a manifest is reported at the line of its field.",
        "client/smq/cli/files/manifest_files.py",
        "line, node = entry[0].start_mark.line, entry[1]",
        "node = entry[1]",
        ("tests/unit/cli/formats/test_manifest_files.py::test_each_mistake_of_a_manifest_has_its_own_line",),
    ),
    Mutation(
        "commit_what_a_broken_file_had",
        "After a write that failed nothing is committed, because nobody knows what the file has.",
        "client/smq/cli/files/message_writer.py",
        "            if not self._writes:\n                self._commit_if_possible(consumer)\n            elif",
        "            self._commit_if_possible(consumer)\n            if self._writes and",
        ("tests/unit/cli/test_consume.py::test_nothing_of_a_file_that_broke_is_committed",),
    ),
)
