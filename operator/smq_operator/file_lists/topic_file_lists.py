"""Names the file lists of one topic's sealed segments in its index, and builds missing ones from the chunk chain.

These functions block on the store. The leader that runs them may be stopped anywhere, may have been replaced without
noticing, and may find what another one has begun:

* A broker that knows all files of a segment writes version 0 after the seal. Version 0 lists the chunk chain, which
  never changes, so every writer's list is the same.
* If it is missing for a while, the leader walks the chain and writes it. It is created only once, whoever writes first.
* One compare-and-swap of the index names it. That fails if retention removed the segment meanwhile, and then the file
  is orphaned (``cleanup/orphaned_files.py``).
* A version 0 that cannot be read is left in place. Every file of the chain exists until a later version replaces some,
  so the leader builds the same list again under the next version, whose name is unique. Once there is a later version,
  the chain may not be whole any more. So a later version that cannot be read is only reported, and readers walk the
  chain.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from smq_core.errors import CorruptChunk, CorruptDocument, StoreUnavailable
from smq_core.file_lists.file_list import FileList
from smq_core.file_lists.file_list_draft import FileListDraft
from smq_core.model.entities import SECOND, SealedSegment, Topic
from smq_storage.catalog import paths, sealed_index
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store
from smq_storage.tables.file_lists import read_file_list, write_file_list
from smq_storage.tables.file_statistics import file_entry

# How long after the seal a leader waits for the broker's file list.
BUILD_AFTER_US = 10 * SECOND
RETRY_AFTER_US = 2 * SECOND
# The time after which a file list is read again, in case its file was damaged or deleted.
CHECK_AGAIN_AFTER_US = 3600 * SECOND
# The time after which a chain that lacks a chunk is reported. Before that, the store's answers may be old.
REPORT_GAP_AFTER_US = 30 * SECOND
MAX_SEGMENTS_PER_PASS = 64
# The most chunks that one pass reads, so that other topics get their turn.
MAX_CHUNKS_PER_PASS = 500


@dataclass(slots=True)
class PassResult:
    """``named``: what the index names now, by segment, of those that one pass was to change. ``built``: what it wrote
    itself. ``more``: the next pass can go on at once. ``failure``: why it ended early.
    """

    named: dict[str, str] = field(default_factory=dict)
    built: list[str] = field(default_factory=list)
    more: bool = False
    failure: StoreUnavailable | None = None


@dataclass(slots=True)
class _Walk:
    """How far a chain was read. A chunk never changes, so the next pass goes on where the last one ended.

    ``advanced_at``: when the last chunk was found. ``sealed``: it was the seal chunk.
    """

    draft: FileListDraft
    advanced_at: int
    sealed: bool = False


@dataclass(slots=True)
class _Open:
    """A segment whose file list is not known to be in order. Times are the leader's."""

    seen_at: int
    retry_at: int = 0
    walk: _Walk | None = None


class TopicFileLists:
    """The file lists of a topic as one leader has read them. One pass runs at a time.

    ``problems`` has the path of what cannot be read and the reason, by segment. ``small_files`` has the file lists of
    which ``has_small_files`` is true, by segment: every file list is read here, so nobody else has to read it for that.
    """

    def __init__(
        self,
        topic: Topic,
        build_after_us: int = BUILD_AFTER_US,
        check_again_after_us: int = CHECK_AGAIN_AFTER_US,
        has_small_files: Callable[[FileList], bool] = lambda file_list: False,
    ) -> None:
        self._topic = topic
        self._has_small_files = has_small_files
        self._build_after_us = build_after_us
        self._check_again_after_us = check_again_after_us
        self._open: dict[str, _Open] = {}
        self._in_order: dict[str, tuple[str, int]] = {}
        """The file list that this leader has read, and when, by segment."""
        self._chunks_left = 0
        self.problems: dict[str, tuple[str, str]] = {}
        self.small_files: dict[str, str] = {}

    def run(self, store: Store, entries: Collection[SealedSegment], now: int, retry_policy: RetryPolicy) -> PassResult:
        """One pass over the entries of the index. Raises StoreUnavailable if the index cannot be changed."""
        result, swaps = PassResult(), dict[str, tuple[str, str]]()
        due = self._due(entries, now)
        self._chunks_left = MAX_CHUNKS_PER_PASS
        for entry in due[:MAX_SEGMENTS_PER_PASS]:
            try:
                name = self._file_list_of(store, entry, now, retry_policy, result)
            except StoreUnavailable as error:
                # The others come first next time, in case the store fails at this segment only.
                self._open[entry.name].retry_at = now + RETRY_AFTER_US
                result.failure = error
                break
            if name is None:
                if self._chunks_left <= 0:
                    result.more = True
                    break
                self._open[entry.name].retry_at = now + RETRY_AFTER_US
            elif name == entry.file_list:
                self._mark_read(entry.name, name, now)
            else:
                swaps[entry.name] = (entry.file_list, name)
        if swaps:
            topic = self._topic
            result.named = sealed_index.name_file_lists(store, topic.name, topic.uid, swaps, retry_policy)
            for segment, (_, name) in swaps.items():
                if result.named.get(segment) == name:
                    self._mark_read(segment, name, now)
        result.more = result.more or len(due) > MAX_SEGMENTS_PER_PASS
        return result

    @property
    def complete(self) -> bool:
        """Whether the last pass left nothing to do."""
        return not self._open

    def _due(self, entries: Collection[SealedSegment], now: int) -> list[SealedSegment]:
        """The entries to look at: those without a file list first, then those whose file list was never read."""
        known = {entry.name for entry in entries}
        for names in (self._open, self._in_order, self.problems, self.small_files):
            for removed in [name for name in names if name not in known]:
                del names[removed]  # type: ignore[attr-defined]
        found = []
        for entry in entries:
            name, checked_at = self._in_order.get(entry.name, ("", 0))
            if not entry.file_list or name != entry.file_list or now - checked_at >= self._check_again_after_us:
                state = self._open.setdefault(entry.name, _Open(now))
                if state.retry_at <= now:
                    found.append(entry)
        return sorted(found, key=lambda entry: bool(entry.file_list))

    def _file_list_of(
        self, store: Store, entry: SealedSegment, now: int, retry_policy: RetryPolicy, result: PassResult
    ) -> str | None:
        """The name of a file list that exists and lists the segment's files, or None if there is none yet."""
        name = entry.file_list or paths.file_list_name(entry.name, 0)
        try:
            found, readable = self._read(store, entry, name), True
        except CorruptDocument as error:
            self._report(entry.name, error)
            found, readable = None, False
        if found is not None:
            self._note_small_files(entry.name, name, found)
            return name
        if entry.file_list and entry.file_list != paths.file_list_name(entry.name, 0):
            return None
        if readable and not entry.file_list and not self._is_overdue(entry, now):
            return None
        try:
            built = self._build(store, entry, now)
            if built is None:
                return None
            if not readable:
                built = replace(built, version=1, nonce=uuid.uuid4().hex)
            name = write_file_list(store, self._topic.name, self._topic.uid, built, retry_policy)
        except (CorruptChunk, CorruptDocument) as error:
            self._report(entry.name, error)
            return None
        result.built.append(entry.name)
        self._note_small_files(entry.name, name, built)
        return name

    def _note_small_files(self, segment: str, name: str, file_list: FileList) -> None:
        if self._has_small_files(file_list):
            self.small_files[segment] = name
        else:
            self.small_files.pop(segment, None)

    def _read(self, store: Store, entry: SealedSegment, name: str) -> FileList | None:
        """Raises CorruptDocument also for another segment's file list, or if the file that the index names is gone."""
        path = paths.file_list(self._topic.name, self._topic.uid, name)
        found = read_file_list(store, self._topic.name, self._topic.uid, name)
        if found is not None and (found.segment, found.end) != (entry.name, entry.end):
            raise CorruptDocument(
                f"{path} lists {found.segment} up to {found.end}, but {entry.name} ends at {entry.end}", path=path
            )
        if found is None and entry.file_list and entry.file_list != paths.file_list_name(entry.name, 0):
            raise CorruptDocument(f"{path} is missing, though the index names it", path=path)
        return found

    def _is_overdue(self, entry: SealedSegment, now: int) -> bool:
        """Whether no broker is expected to write it any more. The earlier time counts, as clocks may be wrong."""
        return now - min(entry.sealed_at, self._open[entry.name].seen_at) >= self._build_after_us

    def _build(self, store: Store, entry: SealedSegment, now: int) -> FileList | None:
        """The file list from the chain, or None if this pass may not read more, or the chain's end is not there."""
        state = self._open[entry.name]
        walk = state.walk = state.walk or _Walk(FileListDraft(entry.name), now)
        chain, draft = ChunkChain(store, self._topic.name, self._topic.uid, entry.name), walk.draft
        while self._chunks_left > 0 and not walk.sealed and (chunk := chain.stored(draft.end)) is not None:
            self._chunks_left -= 1
            walk.advanced_at, walk.sealed = now, chunk.info.sealed
            if not walk.sealed:
                draft.add(file_entry(chunk, self._topic.spec.key))
        path = chain.path(draft.end)
        if walk.sealed:
            if draft.end != entry.end:
                raise CorruptChunk(f"{path} seals the segment at {draft.end}, but the index at {entry.end}", path=path)
            return draft.file_list(entry.end)
        if self._chunks_left > 0 and now - walk.advanced_at >= REPORT_GAP_AFTER_US:
            raise CorruptChunk(f"{path} is missing, though {entry.name} was sealed at {entry.end}", path=path)
        return None

    def _mark_read(self, segment: str, name: str, now: int) -> None:
        self._in_order[segment] = name, now
        self._open.pop(segment, None)
        self.problems.pop(segment, None)

    def _report(self, segment: str, error: CorruptDocument | CorruptChunk) -> None:
        self.problems[segment] = (error.path, error.message)
