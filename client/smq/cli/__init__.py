"""The command line `smq`. Its commands use the library's public names only."""

from smq.cli.app import main

__all__ = ["main"]
