"""Compaction in the leader: small files of sealed segments are merged in the background."""
