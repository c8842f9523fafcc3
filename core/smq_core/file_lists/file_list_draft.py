"""The files of a segment's chunk chain as one process gets to know them, until they make a file list."""

from __future__ import annotations

from smq_core.file_lists.file_list import FileEntry, FileList


class FileListDraft:
    """The files of one chain from offset 0 on, without a gap.

    A process that did not see the beginning of the chain, or a file in its middle, gets an empty draft: what it has is
    of no use to anybody.
    """

    def __init__(self, segment: str) -> None:
        self.segment = segment
        self.end = 0
        """The offset after the last file."""
        self.abandoned = False
        self._files: list[FileEntry] = []

    def __len__(self) -> int:
        return len(self._files)

    def add(self, file: FileEntry) -> None:
        """Takes the next file. One that the draft has already changes nothing; one after a gap abandons the draft."""
        if self.abandoned or file.first < self.end:
            return
        if file.first > self.end:
            self.abandon()
            return
        self._files.append(file)
        self.end = file.end

    def abandon(self) -> None:
        """Frees the memory. The draft stays empty."""
        self.abandoned = True
        self._files.clear()

    def file_list(self, end: int) -> FileList | None:
        """The file list of the segment that was sealed at ``end``, or None if the draft lacks a file."""
        if self.abandoned or self.end != end:
            return None
        return FileList(segment=self.segment, end=end, files=tuple(self._files))
