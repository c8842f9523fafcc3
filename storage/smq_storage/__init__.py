"""Chunks, chains, layout and index in the filer."""
