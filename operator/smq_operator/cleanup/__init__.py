"""Removal of what is no longer wanted: retention, deleted topics, orphaned files, stale segments."""
