"""Merges the small files of sealed segments into larger ones, which are sorted by key."""
