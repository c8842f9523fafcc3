"""The command line `smq`. Its commands use only the library's public names."""

from smq.cli.app import main

__all__ = ["main"]
