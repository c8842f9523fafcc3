"""Keeps the files of a process from other users: they have messages, or say who sends which."""

from __future__ import annotations

import os

_UMASK = 0o077


def make_files_private() -> None:
    """Nobody else can read what this process and its children create from now on: files 0600, folders 0700.

    For processes whose files are the product's alone, at their start.
    """
    os.umask(_UMASK)
