"""Atomic publishes: the leader commits them, and completes what is committed."""
