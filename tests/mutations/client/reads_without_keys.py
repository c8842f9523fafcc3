"""Mutations of reads without the filer's keys: who gets URLs, for which files, and when they are replaced."""

from __future__ import annotations

from ..mutation import Mutation

SERVICE = "operator/smq_operator/api/reads.py"
CALLS = "core/smq_core/access/leader_calls.py"
PATHS = "storage/smq_storage/catalog/paths.py"
URLS = "client/smq/transport/read_urls.py"
READS = "storage/smq_storage/object_store/presigned/reads.py"
KEYS = "storage/smq_storage/object_store/presigned/session_keys.py"
TEST_KEYS = "tests/unit/storage/test_session_keys.py::test_keys_read_and_list_the_folders_of_the_request_only"
TEST_SERVICE = "tests/unit/operator/api/test_uploads.py"
TEST_CALLS = "tests/unit/core/access/test_leader_calls.py::test_each_call_needs_these_rights"
TEST_PATHS = "tests/unit/storage/test_paths.py"
TEST_URLS = "tests/unit/client/transport/test_read_urls.py"
TEST_READS = "tests/unit/storage/test_presigned_reads.py"

MUTATIONS = (
    Mutation(
        "sign_any_path",
        "Readers get URLs for files of their topic only.",
        SERVICE,
        "if not paths.is_for_readers(topic.name, topic.uid, path):",
        "if not path:",
        (f"{TEST_SERVICE}::test_a_wrong_request_of_a_reader_gets_no_url",),
    ),
    Mutation(
        "list_any_folder",
        "Readers list the folders that they need only.",
        SERVICE,
        "if not paths.is_folder_for_readers(topic.name, topic.uid, folder):",
        "if not topic:",
        (f"{TEST_SERVICE}::test_the_files_of_a_segment_are_listed_in_parts",),
    ),
    Mutation(
        "sign_any_file_below_the_topic",
        "Positions of groups, claims and pins are not for readers.",
        PATHS,
        'r"_topic\\.json|_layout\\.json|',
        'r".*json|',
        (f"{TEST_PATHS}::test_readers_of_a_topic_get_nothing_else",),
    ),
    Mutation(
        "sign_the_uid_of_any_topic",
        "Readers of a topic get no file of others.",
        PATHS,
        "if path == current(topic):",
        'if path.endswith("/_current.json"):',
        (f"{TEST_PATHS}::test_readers_of_a_topic_get_nothing_else",),
    ),
    Mutation(
        "hide_that_uploads_were_not_listed",
        "A verification says which check it has left out.",
        "storage/smq_storage/verification/referenced_uploads.py",
        '"is missing" if self._store.lists_uploads else _NOT_LISTED',
        '"is missing"',
        (
            "tests/unit/storage/verification/test_topic_files.py::test_who_may_list_no_uploads_learns_that_none_were_listed",
        ),
    ),
    Mutation(
        "sign_reads_for_anybody",
        "Whoever may not consume gets no URL.",
        CALLS,
        '"Topics.SignReads": _CONSUME',
        '"Topics.SignReads": _ANYBODY',
        (TEST_CALLS,),
    ),
    Mutation(
        "list_files_for_anybody",
        "Whoever may not consume lists no files.",
        CALLS,
        '"Topics.ListFiles": _CONSUME',
        '"Topics.ListFiles": _ANYBODY',
        (TEST_CALLS,),
    ),
    Mutation(
        "give_keys_to_anybody",
        "Whoever may not consume gets no keys.",
        CALLS,
        '"Topics.GetFilerKeys": _rights(Right.CONSUME, audited=True)',
        '"Topics.GetFilerKeys": _ANYBODY',
        (TEST_CALLS,),
    ),
    Mutation(
        "give_keys_that_read_everything",
        "Temporary keys read the folders of one topic.",
        KEYS,
        'objects = [f"{bucket}/{it}" for it in (*below, *self.files)]',
        'objects = [f"{bucket}/*"]',
        (TEST_KEYS,),
    ),
    Mutation(
        "give_keys_that_list_everything",
        "Temporary keys list the folders of one topic.",
        KEYS,
        '"Resource": [bucket], "Condition": condition}',
        '"Resource": [bucket]}',
        (TEST_KEYS,),
    ),
    Mutation(
        "use_a_url_for_ever",
        "A URL is replaced before it expires.",
        URLS,
        "            if found is not None and self._now() < found.good_until:\n                return",
        "            if found is not None:\n                return",
        (f"{TEST_URLS}::test_a_url_is_replaced_before_it_expires",),
    ),
    Mutation(
        "use_a_url_to_its_last_second",
        "A request still has time when it gets its URL.",
        URLS,
        " * (1 - LAST_PART)",
        "",
        (f"{TEST_URLS}::test_a_url_is_replaced_before_it_expires",),
    ),
    Mutation(
        "end_a_read_at_the_first_refused_url",
        "A URL may be refused because the leader has another key since.",
        READS,
        "answer.status in _DENIED:\n                url",
        "not answer:\n                url",
        (f"{TEST_READS}::test_a_refused_url_is_renewed_once",),
    ),
)
