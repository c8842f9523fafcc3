"""Replication of segments from their primary to their followers."""
