"""Keeps the status of Topics, and their Segment resources, as the leader's state requires."""
